"""The one way in which an endpoint refuses a request: an OpenAI-style error reply. And what ASGI is made of."""

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "request_timeout_error",
    412: "precondition_failed_error",
    413: "request_too_large_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Refusal(Exception):
    """A request that goes no further: its status, a sentence for the client and the field it is about, if any."""

    def __init__(self, status: int, message: str, *, param: str | None = None, headers: Sequence[Header] = ()) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.headers = status, message, param, tuple(headers)


def bad_field(param: str, message: str) -> Refusal:
    """A 400 about one field of the body."""
    return Refusal(400, message, param=param)


def shown(value: object) -> str:
    """A client's own word, cut short, or the kind of what is no word."""
    return repr(value)[:80] if isinstance(value, str) else type(value).__name__


def error_response(refusal: Refusal) -> App:
    """An ASGI app that answers with the refusal in the shape of OpenAI's errors."""
    error = {
        "message": refusal.message,
        "type": _TYPES[refusal.status],
        "param": refusal.param,
        "code": refusal.status,
    }
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *refusal.headers,
    ]

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return answer
