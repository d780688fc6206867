"""The HTTP side: OpenAI's routes, a header that names the weights behind a reply, and a read-only status route."""

import ipaddress
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import HTTPException, Request
from ray.llm._internal.serve.core.ingress.ingress import DEFAULT_ENDPOINTS
from ray.llm._internal.serve.core.ingress.mixins.broadcastable import ReplicaBroadcastable
from ray.serve.llm.ingress import OpenAiIngress
from starlette.responses import JSONResponse, Response

from serve.policy import read_mark

HEADER = "x-policy-version"
STATUS_ROUTE = "/admin/version"
ROUTES = ("models", "model_data", "completions", "chat", "tokenize", "detokenize")
ENDPOINTS = {name: DEFAULT_ENDPOINTS[name] for name in ROUTES} | {"admin_version": lambda app: app.get(STATUS_ROUTE)}


class PolicyIngress(OpenAiIngress, ReplicaBroadcastable):
    """Ray's OpenAI ingress; replies also carry the mark of their weights in the header `x-policy-version`.

    The header of a streamed reply is that of its first chunk, since headers are sent before the rest exists.
    """

    async def _get_response(
        self, *, body: Any, call_method: str, raw_request: Request | None = None
    ) -> AsyncGenerator[Any, None]:
        noted = raw_request is None
        parts = super()._get_response(body=body, call_method=call_method, raw_request=raw_request)
        async with aclosing(parts) as items:
            async for item in items:
                if not noted:
                    raw_request.state.policy_mark, noted = read_mark(item), True
                yield item

    async def _process_llm_request(self, body: Any, call_method: str, raw_request: Request | None = None) -> Response:
        response = await super()._process_llm_request(body, call_method, raw_request)
        mark = getattr(raw_request.state, "policy_mark", None) if raw_request is not None else None
        if mark:
            response.headers[HEADER] = mark
        return response

    async def admin_version(self, request: Request) -> JSONResponse:
        """Version and digest in the engine of every running replica. Answers loopback clients only."""
        if not _is_loopback(request):
            raise HTTPException(403, "this route answers only clients on the same machine")
        model_id = await self._get_model_id(None)
        return JSONResponse({"replicas": await self._broadcast_to_replicas(model_id, "policy_status")})


def _is_loopback(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
