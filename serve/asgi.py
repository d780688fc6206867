"""The ASGI layer that every inference request passes: it waits for the gate and its reply is marked and counted."""

import asyncio
import re
import time
import uuid
from typing import Any

from serve.access.errors import App, Message, Receive, Refusal, Send, error_response
from serve.access.routes import GENERATING
from serve.gate import Admission, Gate, GateClosed
from serve.policy import MARK_HEADER, stamp_event, stamp_json
from serve.tally import Tally
from serve.token_counters import count_tokens
from serve.usage import (
    estimated_tokens,
    output_tokens,
    prompt_tokens,
    reasoning_tokens,
    total_tokens,
    without_usage_event,
)

HEADER = MARK_HEADER.encode()
REQUEST_ID = b"x-request-id"
PRECONDITION = b"if-match"
RETRY_S = 5  # when the gate does not open
EVENT_STREAM = b"text/event-stream"


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
        state = scope.get("state", {})
        reply = Reply(send, admission, hide_usage=state.get("hide_usage", False))
        try:
            await self._app(_with_request_id(scope, held), reply.watch(receive), reply.send)
        except asyncio.CancelledError:
            reply.note_leaving()
            raise
        finally:
            self._tally.count(admission.marks[-1], reply.outcome())
            count_tokens(*reply.phases())
            if caller := state.get("caller"):
                caller.charge(reply.used_tokens(_body_size(scope)))


class Reply:
    """One reply on its way out. A plain one is held until it is whole, so that its mark is final. `hide_usage`: of a
    stream, the event that only tells its usage does not go out."""

    def __init__(self, send: Send, admission: Admission, *, hide_usage: bool = False) -> None:
        self._send, self._admission, self._hides_usage = send, admission, hide_usage
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
            if message["type"] == "http.disconnect":
                self.note_leaving()
            return message

        return noting

    def note_leaving(self) -> None:
        """The client went away; a server also says so of one that has its whole reply."""
        self._client_left |= not self._done

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
                body = self._counted(body)
                body = stamp_event(body, self._admission.fingerprint)
            self._done = not more
            if body or not more:
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

    def _counted(self, events: bytes) -> bytes:
        """Notes what `events` say of tokens; those of them that go out."""
        self._last = events if b"_tokens" in events else self._last
        events = without_usage_event(events) if self._hides_usage else events
        self._events += events.count(b"data: {")
        return events

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
        return output_tokens(self._last) or self._events

    def phases(self) -> tuple[int, int, int]:
        """Tokens of the prompt, of the thinking, and of the whole reply, as far as they are told."""
        return prompt_tokens(self._last) or 0, reasoning_tokens(self._last), self.output_tokens

    def used_tokens(self, body_size: int) -> int:
        """Prompt and reply as the usage says. A reply without one that was sent in part, or whose client left, used at
        least its events and about what a body of `body_size` bytes holds; one that was refused or failed, nothing."""
        told = total_tokens(self._last)
        if told is not None:
            return told
        is_answered = 200 <= self.status < 400
        return self._events + estimated_tokens(body_size) if is_answered or self._client_left else 0

    def outcome(self) -> dict[str, Any]:
        """What the tally keeps. A reply is failed when the server broke it off or answered 5xx, left when the client
        went away first."""
        left = self._client_left and not self._done
        failed = not left and (not self._done or self.status >= 500)
        seconds = time.monotonic() - self._began
        return {"failed": failed, "left": left, "output_tokens": self.output_tokens, "seconds": seconds}


def _header(scope: Message, name: bytes) -> str:
    values = [value for key, value in scope.get("headers", ()) if key.lower() == name]
    return values[0].decode("latin-1").strip().strip('"') if values else ""


def _body_size(scope: Message) -> int:
    length = _header(scope, b"content-length")  # the access layer sets it
    return int(length) if length.isdecimal() else 0


def _with_request_id(scope: Message, mark: str) -> Message:
    """The engine names a reply after `x-request-id`; with the mark in front a reply can be traced to its weights."""
    own = re.sub(r"[^A-Za-z0-9_.-]", "", _header(scope, REQUEST_ID))[:64] or uuid.uuid4().hex
    headers = [pair for pair in scope["headers"] if pair[0].lower() != REQUEST_ID]
    # An id may occur twice when a client repeats its own; the engine refuses a second request of a running id.
    unique = f"{mark}-{own}-{uuid.uuid4().hex[:8]}"
    return {**scope, "headers": [*headers, (REQUEST_ID, unique.encode())]}
