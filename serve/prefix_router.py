"""The router that HAProxy asks where to send a request, for `serve.routing: prefix`. A deployment of its own beside the
replicas, which Serve keeps on each node with a proxy. What it needs of Ray's private names is here and in node_only.

Ray Serve LLM has one (LLMRouter with PrefixCacheAffinityRouter). In the pinned release it asks for a replica without
sending through Serve, and Serve then never calls the hook in which that policy learns a prompt: its tree stays empty.
"""

import asyncio
import time
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from ray import serve
from ray.serve._private.constants import RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY
from ray.serve.handle import DeploymentHandle

from pipeline.config import UserError
from serve.node_only import bind_http_to_loopback, bind_to_node
from serve.prefix_index import PrefixIndex, blocks_of, choose, prompt_text

REFRESH_S = 0.25  # loads older than that are asked for again, beside the requests
STALE_S = 2.0  # loads older than that are waited for
PROBE_DEADLINE_S = 0.5
IMBALANCE = 8  # requests

routes = FastAPI(openapi_url=None)


def with_prefix_router(app: serve.Application, imbalance: int | None) -> serve.Application:
    """`app` (of replicas that answer HTTP themselves) with this router in front. UserError where HAProxy would not let
    it see a prompt."""
    if not RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY:
        raise UserError(
            "serve.routing is 'prefix', but this cluster's HAProxy does not show requests to a router: start the Ray "
            "head with RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY=1, or use least_connections"
        )
    deployment = serve.deployment(PrefixRouter, max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
    return app._with_ingress_request_router(deployment.bind(app, imbalance or IMBALANCE))


class Loads:
    """Requests inside each replica: as it last said, and those sent there since."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._asked = -STALE_S
        self._asking: asyncio.Task | None = None
        self.unanswered = 0

    def sent(self, name: str) -> None:
        self._known[name] = self._known.get(name, 0) + 1

    async def of(self, replicas: dict[str, Any]) -> dict[str, float]:
        """By name, for these replicas (Serve's `RunningReplica`). One that never answered counts as empty."""
        age = time.monotonic() - self._asked
        if age > REFRESH_S and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(dict(replicas)))
        if age > STALE_S:
            await asyncio.wait([self._asking], timeout=PROBE_DEADLINE_S)
        return {name: self._known.get(name, 0) for name in replicas}

    async def _ask(self, replicas: dict[str, Any]) -> None:
        async def one(replica: Any) -> int:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                return await replica.get_queue_len(deadline_s=PROBE_DEADLINE_S)

        answers = await asyncio.gather(*map(one, replicas.values()), return_exceptions=True)
        self._known = {name: load for name, load in self._known.items() if name in replicas}
        for name, answer in zip(replicas, answers, strict=True):
            if isinstance(answer, BaseException):
                self.unanswered += 1  # what was known of it stays; Serve takes a dead one out of the list itself
            else:
                self._known[name] = answer
        self._asked = time.monotonic()


@serve.ingress(routes)
class PrefixRouter:
    """Answers HAProxy's `POST /internal/route`, whose body is the client's, with the name of a replica."""

    async def __init__(self, server: DeploymentHandle, imbalance: float) -> None:
        bind_to_node()
        bind_http_to_loopback()
        server._init()
        self._server, self._imbalance = server, imbalance
        self._index, self._loads = PrefixIndex(), Loads()
        self._names: set[str] = set()

    @routes.post("/internal/route")
    async def route(self, request: Request) -> Response:
        body = await request.body()
        replicas = self._replicas()
        if not replicas:
            return JSONResponse({"detail": "no replica is running"}, 503)
        for gone in self._names - set(replicas):
            self._index.forget(gone)
        self._names = set(replicas)
        blocks = blocks_of(prompt_text(body))
        name = choose(self._index, blocks, await self._loads.of(replicas), self._imbalance)
        self._index.remember(blocks, name)
        self._loads.sent(name)
        return JSONResponse({"replica_id": name})

    def _replicas(self) -> dict[str, Any]:
        """Serve's running replicas by the name HAProxy has for them."""
        router = self._server._router
        router = getattr(router, "_asyncio_router", router).request_router
        return {key.to_full_id_str(): replica for key, replica in router.curr_replicas.items()} if router else {}
