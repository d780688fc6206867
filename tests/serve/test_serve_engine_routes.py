"""How vLLM's app is fitted for a replica."""

import asyncio
import json
import logging

import httpx
import pytest

from serve.access.reading import BODY
from serve.access.routes import GENERATING

pytestmark = pytest.mark.slow  # imports vLLM

CHAT = {"messages": [{"role": "user", "content": "3 + 4 = ?"}], "max_tokens": 4}
BODIES = dict(zip(GENERATING, (CHAT, {"prompt": "3 + 4", "max_tokens": 4}, {"input": "3 + 4"}), strict=True))


def test_browsers_and_adapters_pass_by_and_generations_come_first():
    from fastapi import FastAPI
    from ray.llm._internal.serve.core.server.llm_server import _ResolveLoRAMiddleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.gzip import GZipMiddleware

    from serve.engine_routes import trim

    app = FastAPI(openapi_url=None)
    for path in ("/health", "/v1/models", "/v1/chat/completions", "/tokenize", "/v1/completions"):
        app.add_api_route(path, lambda: None)
    for layer, options in ((CORSMiddleware, {}), (GZipMiddleware, {}), (_ResolveLoRAMiddleware, {"server": None})):
        app.add_middleware(layer, **options)
    app.middleware_stack = app.build_middleware_stack()
    trim(app)
    assert [layer.cls for layer in app.user_middleware] == [GZipMiddleware] and app.middleware_stack is None
    first = ["/v1/chat/completions", "/v1/completions"]
    assert [route.path for route in app.routes] == [*first, "/health", "/v1/models", "/tokenize"]


class Handler:
    """Answers as vLLM's handlers do, with what they were asked: whole, as a stream, refusing, or not at all."""

    def __init__(self):
        self.waits = asyncio.Event()

    async def create_chat_completion(self, request, raw):
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionResponse

        message = {"index": 0, "message": {"role": "assistant", "content": "é"}}
        return await self.answer(request, raw, ChatCompletionResponse, message)

    async def create_completion(self, request, raw):
        from vllm.entrypoints.openai.completion.protocol import CompletionResponse

        return await self.answer(request, raw, CompletionResponse, {"index": 0, "text": "é"})

    async def create_responses(self, request, raw):
        from vllm.entrypoints.openai.responses.protocol import ResponsesResponse

        asked = json.dumps(request.model_dump(mode="json", exclude_unset=True))
        whole = ResponsesResponse.model_construct(id="a", created_at=1, model=asked, output=[])
        return self.parts(whole) if request.stream else whole

    async def parts(self, whole):
        yield whole

    async def answer(self, request, raw, kind, choice):
        asked = json.dumps(request.model_dump(exclude_unset=True) | {"id": raw.headers["x-request-id"]})
        if request.seed == 500:
            raise ValueError("what vLLM answers with 400")
        if request.seed == 404:
            return refused(asked)
        if request.seed == 0:
            self.waits.set()
            await asyncio.sleep(60)
        if request.stream:
            return self.events(asked)
        usage = {"prompt_tokens": 1, "total_tokens": 2}
        return kind(id="a", created=1, model=asked, choices=[choice], usage=usage)

    async def events(self, asked):
        for word in ("one", asked, "[DONE]"):
            yield f"data: {word}\n\n"


def refused(text):
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse

    return ErrorResponse(error=ErrorInfo(message=text, type="NotFoundError", code=404))


def vllms_app():
    """With a handler that needs no engine."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.openai.api_server import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    app = build_app(make_arg_parser(FlexibleArgumentParser()).parse_args([]), supported_tasks=("generate",))
    app.state.openai_serving_chat = app.state.openai_serving_completion = Handler()
    app.state.openai_serving_responses = app.state.openai_serving_chat
    return app


@pytest.fixture(scope="module")
def apps():
    """vLLM's app as it is, and one that takes parsed bodies."""
    from serve.engine_routes import take_parsed_bodies

    usual, parsed = vllms_app(), vllms_app()
    take_parsed_bodies(parsed)
    return usual, parsed


async def asked(app, path, body):
    """The whole reply to `body`, which stands parsed in the scope as the access layer leaves it."""

    async def with_parsed(scope, receive, send):
        await app({**scope, "state": {BODY: json.loads(json.dumps(body))}}, receive, send)

    headers = {"x-request-id": "r-1"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(with_parsed), base_url="http://here") as client:
        reply = await client.post(path, json=body, headers=headers)
    return reply.status_code, sorted(reply.headers.items()), reply.text


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"temperature": 0.5, "n": 2, "stop": ["a"], "top_k": 3, "unknown_field": [1]},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"seed": 404},
        {"seed": 500},
        {"max_tokens": "many"},
        {"max_tokens": "12"},
        {"max_tokens": None},
        {"temperature": -1},
        {"messages": "none", "prompt": {"a": 1}, "input": 3},
        {"stream_options": {"include_usage": True}},
        {"response_format": {"type": "json_schema"}},
        {"tools": [], "tool_choice": "auto"},
        {"logprobs": True, "top_logprobs": 99, "prompt_logprobs": -5},
    ],
)
@pytest.mark.parametrize("path", GENERATING)
def test_a_parsed_body_gets_the_reply_that_the_bytes_get(apps, path, changed):
    usual, parsed = (asyncio.run(asked(app, path, BODIES[path] | changed)) for app in apps)
    assert parsed == usual


def test_the_usual_way_is_only_taken_by_what_is_no_request(apps, monkeypatch):
    routes = [route for route in apps[1].routes if getattr(route, "path", "") in GENERATING]
    posts = [route for route in routes if "POST" in route.methods]
    assert {route.path for route in posts} == set(GENERATING)
    taken = []
    for route in posts:

        async def usual(scope, receive, send, path=route.path, to=route.app._usual):
            taken.append(path)
            await to(scope, receive, send)

        monkeypatch.setattr(route.app, "_usual", usual)
        body = BODIES[route.path]
        assert asyncio.run(asked(apps[1], route.path, body))[0] in (200, 404)
        assert taken == []
        assert asyncio.run(asked(apps[1], route.path, body | {"temperature": "hot"}))[0] == 400
        assert taken == [route.path]
        taken.clear()


def test_a_client_that_leaves_is_told_of_as_vllms_app_does(apps):
    """Nobody reads it, but vLLM counts requests by it."""

    async def leaving(app):
        handler, sent = app.state.openai_serving_chat, []
        handler.waits = asyncio.Event()
        coming = [{"type": "http.request", "body": json.dumps(CHAT | {"seed": 0}).encode(), "more_body": False}]

        async def receive():
            if coming:
                return coming.pop()
            await handler.waits.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        headers = [(b"x-request-id", b"r-1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
        more = {"query_string": b"", "http_version": "1.1", "state": {BODY: CHAT | {"seed": 0}}}
        await asyncio.wait_for(app(scope | more, receive, send), 20)
        return sent

    usual, parsed = (asyncio.run(leaving(app)) for app in apps)
    assert sorted(parsed[0].pop("headers")) == sorted(usual[0].pop("headers"))
    assert parsed == usual and usual[0]["status"] == 200


def test_requests_are_counted_as_in_vllms_own_server():
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware

    from serve.engine_routes import trim

    app, registry = vllms_app(), CollectorRegistry()
    layer = next(one for one in app.user_middleware if one.cls is PrometheusInstrumentatorMiddleware)
    layer.kwargs["registry"] = registry
    app.middleware_stack = app.build_middleware_stack()  # vLLM makes it at once, and Ray's layer throws it away
    trim(app)
    for body in ({}, {"seed": 500}, {"temperature": "hot"}):
        asyncio.run(asked(app, "/v1/completions", BODIES["/v1/completions"] | body))
    lines = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("http_requests_total")]
    counted = {'status="2xx"} 1.0', 'status="4xx"} 2.0'}
    assert {line.partition('method="POST",')[2] for line in lines} == counted


def test_routes_that_are_not_there_are_missed(apps):
    from fastapi import FastAPI

    from serve.engine_routes import take_parsed_bodies

    around = FastAPI()
    around.mount("/", apps[0])
    with pytest.raises(RuntimeError, match="no route of its own for /v1/chat/completions, /v1/completions"):
        take_parsed_bodies(around)


def test_a_replicas_app_is_fitted(apps, monkeypatch, tmp_path):
    from types import SimpleNamespace

    from ray.serve.llm.deployment import LLMServer

    import serve.server
    from serve.engine_routes import ParsedBody

    class Replica(serve.server.HotSwapServer):
        def __del__(self):
            """There is no engine to end."""

    async def build(self):
        return apps[0]

    rendering = []
    monkeypatch.setattr(LLMServer, "__serve_build_asgi_app__", build)
    monkeypatch.setattr(serve.server, "get_serve_logs_dir", lambda: str(tmp_path))
    monkeypatch.setattr(serve.server, "render_short_at_once", rendering.append)
    monkeypatch.setattr(logging.getLogger("serve"), "setLevel", lambda level: None)
    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id="r"))
    monkeypatch.setattr(serve.server.serve, "get_replica_context", lambda: context)
    apps[0].state.openai_serving_models = SimpleNamespace(base_model_paths=[])
    server = object.__new__(Replica)
    client = SimpleNamespace(renderer="the renderer")
    server.engine = SimpleNamespace(_engine_client=client)
    server.gate = server.tally = server.access = None
    routes = apps[0].routes
    kept = [(route, route.app) for route in routes if getattr(route, "path", "") in GENERATING]
    try:
        asyncio.run(server.__serve_build_asgi_app__())
        assert sum(isinstance(route.app, ParsedBody) for route, _ in kept) == len(GENERATING)
    finally:
        for route, app in kept:
            route.app = app
    assert rendering == ["the renderer"]
