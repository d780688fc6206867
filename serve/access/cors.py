"""Requests that browsers send from pages of other origins: closed, but for a list of origins."""

from collections.abc import Mapping

from serve.access.errors import App, Message, Receive, Refusal, Send, error_response
from serve.access.routes import is_known_path
from serve.policy import MARK_HEADER

_ALLOWED = (
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type, if-match, x-request-id"),
    (b"access-control-max-age", b"600"),
)
_EXPOSED = (b"access-control-expose-headers", f"{MARK_HEADER}, x-request-id, retry-after".encode())


def is_preflight(scope: Message, headers: Mapping[bytes, bytes]) -> bool:
    """True for the question a browser asks before a request that needs permission; it carries no key."""
    return scope["method"] == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def preflight(scope: Message, headers: Mapping[bytes, bytes], origins: tuple[str, ...]) -> App:
    """The answer to a preflight: permission for an allowed origin and a known path, else 403."""
    origin = headers[b"origin"]
    if origin.decode("latin-1") not in origins or not is_known_path(scope["path"], scope.get("raw_path")):
        return error_response(Refusal(403, "this origin may not use the endpoint from a page"))

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        granted = [*_origin_headers(origin), *_ALLOWED]
        await send({"type": "http.response.start", "status": 204, "headers": granted})
        await send({"type": "http.response.body", "body": b""})

    return answer


def with_origin(send: Send, headers: Mapping[bytes, bytes], origins: tuple[str, ...]) -> Send:
    """`send` whose replies a page of an allowed origin may read, and no other page: what the app itself says of origins
    is taken out."""
    origin = headers.get(b"origin", b"")
    granted = [*_origin_headers(origin), _EXPOSED] if origin.decode("latin-1") in origins else []

    async def deciding(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", ()) if not pair[0].lower().startswith(b"access-control-")]
            message = {**message, "headers": [*kept, *granted]}
        await send(message)

    return deciding


def _origin_headers(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
