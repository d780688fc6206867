"""vLLM's app, fitted for a replica: without layers that no request needs, and its routes given parsed bodies."""

import inspect

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware
from pydantic import ValidationError
from ray.llm._internal.serve.core.server.llm_server import _ResolveLoRAMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse

from serve.access.errors import Message, Receive, Send
from serve.access.reading import BODY
from serve.access.routes import GENERATING


def trim(native: FastAPI) -> None:
    """Takes out of vLLM's app what no request needs (`access` answers browsers, and no adapter is loaded by a request),
    and puts first the routes that most ask for: they are tried in order."""
    unneeded = (CORSMiddleware, _ResolveLoRAMiddleware)
    native.user_middleware = [layer for layer in native.user_middleware if layer.cls not in unneeded]
    for layer in native.user_middleware:
        if layer.cls is PrometheusInstrumentatorMiddleware:
            _forget_figures(layer.kwargs["registry"])
    native.middleware_stack = None  # it is made again at the first request
    native.router.routes.sort(key=lambda route: route.path not in GENERATING)


def _forget_figures(registry: CollectorRegistry) -> None:
    """Of the layer that counts requests, which vLLM has made once: the next one would find them taken, and then it
    counts nothing."""
    names = registry._names_to_collectors
    for collector in {id(one): one for name, one in names.items() if name.startswith("http_")}.values():
        registry.unregister(collector)


def take_parsed_bodies(native: FastAPI) -> None:
    """Makes the routes of generations use the body that the access layer has parsed. RuntimeError where vLLM's app has
    them no longer in its own list."""
    routes = [one for one in native.routes if isinstance(one, APIRoute) and one.path in GENERATING]
    posts = {route.path: route for route in routes if "POST" in route.methods}
    if missing := set(GENERATING) - set(posts):
        raise RuntimeError(f"vLLM's app has no route of its own for {', '.join(sorted(missing))}")
    for route in posts.values():
        route.app = ParsedBody(route)


class ParsedBody:
    """In place of FastAPI's handling of a route, which reads and parses the body once more and resolves dependencies.

    The endpoint is vLLM's, with all that it does. A body that is no request of it goes FastAPI's way, whose answer
    tells what is wrong.
    """

    def __init__(self, route: APIRoute) -> None:
        self._usual, self._endpoint = route.app, route.endpoint
        self._model = inspect.get_annotations(inspect.unwrap(route.endpoint))["request"]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            request = self._model.model_validate(scope["state"][BODY])
        except ValidationError:
            request = None
        if request is None:
            await self._usual(scope, receive, send)
            return
        response = await self._endpoint(request, Request(scope, receive, send))
        # None: the client has left. What FastAPI makes of that counts as 200 in vLLM's figures, nothing as 500.
        await (response or JSONResponse(None))(scope, receive, send)
