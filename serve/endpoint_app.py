"""What a replica answers over HTTP: access, then our own routes, then the gate, then vLLM's app."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serve import ui
from serve.access import AccessMiddleware, AccessSettings
from serve.access.log import LOGGED, Log
from serve.asgi import App, GateMiddleware, Message, Receive, Send
from serve.gate import Gate
from serve.leaving import LeavingMiddleware
from serve.speculation.settings import SCHEDULER
from serve.tally import Tally

PROBE_DEADLINE_S = 10.0
PROBE_KEPT_S = 2.0  # probes in between get the last answer


class EndpointApp:
    """An ASGI app; it needs neither Ray nor vLLM. Lifespan events go to `engine_app` alone, all else through `access`.

    `readiness(deadline in seconds)` says why the replica is not ready, None when it is; `states()` gives
    `replicas`, the state of each that answers, and `silent`, the names of the others; `effective()` what this one's
    engine was asked for and runs with; `log` takes a line a request. Until `access.update` where `settings` is None,
    only probes are answered.
    """

    def __init__(
        self,
        engine_app: App,
        gate: Gate,
        tally: Tally,
        settings: AccessSettings | None,
        *,
        readiness: Callable[[float], Awaitable[str | None]],
        states: Callable[[], Awaitable[dict[str, Any]]],
        effective: Callable[[], dict[str, Any]] = dict,
        log: Log = LOGGED,
    ) -> None:
        self._engine_app, self._readiness, self._states, self._effective = engine_app, readiness, states, effective
        self.routes = getattr(engine_app, "routes", [])  # Serve names its metrics by them
        own = [
            Route("/livez", self._alive),
            Route("/readyz", self._ready),
            Route("/admin/version", self._versions),
            Route("/admin/effective-config", self._effective_config),
            *ui.routes(),
        ]
        self._own = {route.path: route for route in own}
        self._gated = GateMiddleware(LeavingMiddleware(engine_app), gate, tally)
        self.access = AccessMiddleware(self._route, settings, keeps_caps=lambda: self._keeps_caps, log=log)
        self._probed = -PROBE_KEPT_S
        self._reason: str | None = None
        self._probing = asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        app = self._engine_app if scope["type"] == "lifespan" else self.access
        await app(scope, receive, send)

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        own = self._own.get(scope["path"])
        await (own.handle if own else self._gated)(scope, receive, send)

    @cached_property
    def _keeps_caps(self) -> bool:
        """True where no request gets more drafted tokens than its cap: nothing is drafted, or our scheduler cuts. What
        the engine was asked for stays the same while the replica lives."""
        asked = self._effective().get("requested", {})
        return not asked.get("speculative_config") or asked.get("scheduler_cls") == SCHEDULER

    async def _alive(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        async with self._probing:
            if time.monotonic() - self._probed >= PROBE_KEPT_S:
                self._reason = await self._readiness(PROBE_DEADLINE_S)
                self._probed = time.monotonic()
        if self._reason:
            return JSONResponse({"status": "not ready", "reason": self._reason}, 503)
        return JSONResponse({"status": "ready"})

    async def _versions(self, request: Request) -> Response:
        return JSONResponse(await self._states())

    async def _effective_config(self, request: Request) -> Response:
        return JSONResponse(self._effective())
