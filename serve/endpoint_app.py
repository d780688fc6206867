"""What a replica answers over HTTP: access, then our own routes, then the gate, then vLLM's app."""

import asyncio
import time
from typing import TYPE_CHECKING

from ray import serve
from ray.llm._internal.serve.utils.broadcast import broadcast
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from serve import ui
from serve.access import AccessMiddleware
from serve.asgi import App, GateMiddleware, Message, Receive, Send

if TYPE_CHECKING:
    from serve.server import HotSwapServer

PROBE_DEADLINE_S = 10.0
PROBE_KEPT_S = 2.0  # probes in between get the last answer


class EndpointApp:
    """An ASGI app. Lifespan events go to vLLM's app alone."""

    def __init__(self, engine_app: App, server: "HotSwapServer") -> None:
        self._engine_app, self._server = engine_app, server
        self.routes = getattr(engine_app, "routes", [])  # Serve names its metrics by them
        gated = GateMiddleware(engine_app, server.gate, server.tally)
        own = [
            Route("/livez", self._alive),
            Route("/readyz", self._ready),
            Route("/admin/version", self._versions),
            *ui.routes(),
        ]
        self.access = AccessMiddleware(Router(own, redirect_slashes=False, default=gated), server.access)
        self._probed = -PROBE_KEPT_S
        self._reason: str | None = None
        self._probing = asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        app = self.access if scope["type"] == "http" else self._engine_app
        await app(scope, receive, send)

    async def _alive(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        async with self._probing:
            if time.monotonic() - self._probed >= PROBE_KEPT_S:
                self._reason = await self._server.readiness(PROBE_DEADLINE_S)
                self._probed = time.monotonic()
        if self._reason:
            return JSONResponse({"status": "not ready", "reason": self._reason}, 503)
        return JSONResponse({"status": "ready"})

    async def _versions(self, request: Request) -> Response:
        """The state of every running replica, from itself."""
        context = serve.get_replica_context()
        handle = serve.get_deployment_handle(context.deployment, context.app_name)
        return JSONResponse({"replicas": await asyncio.to_thread(broadcast, handle, "policy_status")})
