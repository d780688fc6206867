"""The way of a generation through a replica: past Ray Serve's handling of each request, but counted there."""

import logging
import time
from typing import Any

from ray.serve._private import replica
from ray.serve._private.common import RequestMetadata, RequestProtocol
from ray.serve._private.tracing_utils import is_tracing_enabled

from serve.access.errors import App, Message, Receive, Send
from serve.access.middleware import CLIENT_LEFT
from serve.access.routes import GENERATING
from serve.leaving import UNWATCHED

logger = logging.getLogger(__name__)

TIMEOUT = b"x-request-timeout-seconds"  # with which a client lets Serve end its request
HTTP = RequestMetadata("", "", is_direct_ingress=True, _request_protocol=RequestProtocol.HTTP)


class ShortPath:
    """Around Ray Serve's handling of HTTP requests, which takes an eighth of the front end's time: ids, contexts, a
    record for its log, and two tasks that listen for the client as vLLM's app does anyway.

    A generation goes to the replica's own app at once; `taken` counts them. Serve counts it as ongoing, for autoscaling
    and draining, and has its status and latency for its metrics. What else Serve does for a request it does not get:
    `max_ongoing_requests` and `max_queued_requests` (`serve.access.max_waiting` holds), a request context, traces.
    """

    def __init__(self) -> None:
        self.taken = 0

    def around(self, handling: App) -> App:
        """The app of the replica's HTTP server; `handling` is the method of Serve's replica that it would be."""
        owner = handling.__self__

        async def app(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] not in GENERATING or TIMEOUT in dict(scope["headers"]):
                await handling(scope, receive, send)
                return
            self.taken += 1
            await _answer(owner, {**scope, "state": {UNWATCHED: True}}, receive, send)

        return app


async def _answer(owner: Any, scope: Message, receive: Receive, send: Send) -> None:
    """As Serve counts: what broke and what was left are errors, an answer with an error's status is none."""
    began, status, is_whole, error = time.monotonic(), CLIENT_LEFT, False, None

    async def noting(message: Message) -> None:
        nonlocal status, is_whole
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            is_whole = not message.get("more_body", False)
        await send(message)

    metrics = owner._metrics_manager
    metrics.inc_num_ongoing_requests(HTTP)
    try:
        await owner._user_callable_asgi_app(scope, receive, noting)
    except Exception as broken:
        logger.exception("%s failed", scope["path"])  # uvicorn's own line is switched off by Serve
        status, error = 500, type(broken).__name__
        if not is_whole:  # for what is told here uvicorn closes the connection, on which HAProxy sends the next request
            raise
    finally:
        metrics.dec_num_ongoing_requests(HTTP)
        if not is_whole and error is None:
            status, error = CLIENT_LEFT, "CancelledError"
        _record(owner, scope, status, error, 1000 * (time.monotonic() - began))


def _record(owner: Any, scope: Message, status: int, error: str | None, ms: float) -> None:
    metrics, deployment, route = owner._metrics_manager, owner._deployment_id, scope["path"]
    metrics.record_request_metrics(route=route, latency_ms=ms, is_error=error is not None, exception_type=error)
    metrics.record_ingress_request_metrics(
        protocol=RequestProtocol.HTTP,
        method=scope["method"],
        route=route,
        app_name=deployment.app_name,
        deployment_name=deployment.name,
        latency_ms=ms,
        is_error=status >= 400,
        status_code=str(status),
    )


def give_short_path(path: ShortPath) -> None:
    """To the replica's HTTP server; not where Serve is to end requests after a time (`request_timeout_s`), to trace
    them, or to run the app on a loop of its own. Call it in the replica, before it is initialised."""
    start = replica.start_asgi_http_server

    async def start_with(handling: App, options: Any, **more: Any) -> Any:
        apart = handling.__self__._user_callable_wrapper._run_user_code_in_separate_thread
        is_plain = not (options.request_timeout_s or is_tracing_enabled() or apart)
        return await start(path.around(handling) if is_plain else handling, options, **more)

    replica.start_asgi_http_server = start_with
