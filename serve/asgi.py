"""The ASGI layer that every inference request passes: it waits for the gate and its reply is marked and counted."""

import re
import time
import uuid
from typing import Any

from serve.access.errors import App, Message, Receive, Refusal, Send, error_response
from serve.access.routes import GENERATING
from serve.gate import Admission, Gate, GateClosed
from serve.policy import MARK_HEADER, stamp_event, stamp_json
from serve.tally import Tally

HEADER = MARK_HEADER.encode()
REQUEST_ID = b"x-request-id"
PRECONDITION = b"if-match"
RETRY_S = 5  # when the gate does not open
EVENT_STREAM = b"text/event-stream"
_OUTPUT = re.compile(rb'"(?:completion|output)_tokens":\s*(\d+)')
_TOTAL = re.compile(rb'"total_tokens":\s*(\d+)')


class GateMiddleware:
    """Around the engine's app. A request gets inside once the gate is open; its reply names the weights that made it in
    the header `x-policy-version`, in `system_fingerprint` (of the body, or of each event) and in its id.

    The header of a stream is sent before the rest exists: it names the weights the stream began with. A request with
    `if-match: "<mark>"` is answered 412 by a replica that holds other weights, and any request 503 where the gate does
    not open.
    """

    def __init__(self, app: App, gate: Gate, tally: Tally) -> None:
        self._app, self._gate, self._tally = app, gate, tally

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in GENERATING or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            async with self._gate.admit() as admission:
                await self._answer(scope, receive, send, admission)
        except GateClosed as error:
            retry = [(b"retry-after", str(RETRY_S).encode())]
            await error_response(Refusal(503, str(error), headers=retry))(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send, admission: Admission) -> None:
        wanted, held = _header(scope, PRECONDITION), admission.fingerprint
        if wanted and wanted != held:
            text = f"this replica holds {held}, not {wanted}: ask again, or leave out if-match"
            refusal = Refusal(412, text, param="if-match", headers=[(HEADER, held.encode())])
            await error_response(refusal)(scope, receive, send)
            return
        reply = Reply(send, admission)
        try:
            await self._app(_with_request_id(scope, held), reply.watch(receive), reply.send)
        finally:
            self._tally.count(admission.marks[-1], reply.outcome())
            if caller := scope.get("state", {}).get("caller"):
                caller.charge(reply.total_tokens)


class Reply:
    """One reply on its way out. A plain one is held until it is whole, so that its mark is final."""

    def __init__(self, send: Send, admission: Admission) -> None:
        self._send, self._admission = send, admission
        self._start: Message | None = None
        self._held = bytearray()
        self._stream = self._done = self._client_left = False
        self._events = 0
        self._last = b""  # the piece that may hold the usage
        self._began = time.monotonic()
        self.status = 0

    def watch(self, receive: Receive) -> Receive:
        """`receive` that notes when the client goes away."""

        async def noting() -> Message:
            message = await receive()
            self._client_left |= message["type"] == "http.disconnect"
            return message

        return noting

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    async def _begin(self, message: Message) -> None:
        self.status = message["status"]
        kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
        self._stream = any(kind.startswith(EVENT_STREAM) for kind in kinds)
        if self._stream:
            await self._send(self._marked(message, None))
        else:
            self._start = message

    async def _body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._stream:
            if body:
                self._events += body.count(b"data: {")
                self._last = body if b"_tokens" in body else self._last
                body = stamp_event(body, self._admission.fingerprint)
            self._done = not more
            await self._send({**message, "body": body})
            return
        self._held += body
        if more:
            return
        whole = bytes(self._held)
        self._last, self._done = whole, True
        if self.status < 400:
            whole = stamp_json(whole, self._admission.fingerprint)
        await self._send(self._marked(self._start, len(whole)))
        await self._send({"type": "http.response.body", "body": whole})

    def _marked(self, start: Message, length: int | None) -> Message:
        replaced = (HEADER, b"content-length") if length is not None else (HEADER,)
        headers = [pair for pair in start.get("headers", ()) if pair[0].lower() not in replaced]
        headers.append((HEADER, self._admission.fingerprint.encode()))
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        return {**start, "headers": headers}

    @property
    def output_tokens(self) -> int:
        """As the reply's usage says; of a stream without usage, its events."""
        return _last_number(_OUTPUT, self._last) or self._events

    @property
    def total_tokens(self) -> int:
        """Prompt and reply as the usage says, else the reply's tokens."""
        return _last_number(_TOTAL, self._last) or self.output_tokens

    def outcome(self) -> dict[str, Any]:
        """What the tally keeps. A reply is failed when the server broke it off or answered 5xx, left when the client
        went away first."""
        left = self._client_left and not self._done
        failed = not left and (not self._done or self.status >= 500)
        seconds = time.monotonic() - self._began
        return {"failed": failed, "left": left, "output_tokens": self.output_tokens, "seconds": seconds}


def _last_number(pattern: re.Pattern[bytes], text: bytes) -> int:
    found = pattern.findall(text)
    return int(found[-1]) if found else 0


def _header(scope: Message, name: bytes) -> str:
    values = [value for key, value in scope.get("headers", ()) if key.lower() == name]
    return values[0].decode("latin-1").strip().strip('"') if values else ""


def _with_request_id(scope: Message, mark: str) -> Message:
    """The engine names a reply after `x-request-id`; with the mark in front a reply can be traced to its weights."""
    own = re.sub(r"[^A-Za-z0-9_.-]", "", _header(scope, REQUEST_ID))[:64] or uuid.uuid4().hex
    headers = [pair for pair in scope["headers"] if pair[0].lower() != REQUEST_ID]
    # An id may occur twice when a client repeats its own; the engine refuses a second request of a running id.
    unique = f"{mark}-{own}-{uuid.uuid4().hex[:8]}"
    return {**scope, "headers": [*headers, (REQUEST_ID, unique.encode())]}
