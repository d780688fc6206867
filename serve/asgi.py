"""The ASGI layer that every inference request passes: it waits for the gate and its reply is marked and counted."""

import asyncio
import random
import re
import time
import uuid
from typing import Any

from serve.access.errors import App, Message, Receive, Refusal, Send, error_response
from serve.access.reading import ClientLeft, given_first
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
LENGTH = b"content-length"
RETRY_S = 5  # when the gate does not open
EVENT_STREAM = b"text/event-stream"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NAMES = random.Random()  # names are no secrets, and os.urandom lets go of the interpreter's lock: 0.04 ms under load


class GateMiddleware:
    """Around the engine's app. A request gets inside once the gate is open; its reply names the weights that made it in
    the header `x-policy-version`, in `system_fingerprint` (of the body, or of each event) and in its id.

    The header of a stream is sent before the rest exists: it names the weights the stream began with. A request with
    `if-match: "<mark>"` is answered 412 by a replica that holds other weights, and any request 503 where the gate does
    not open. The access layer stands before it: names of headers are lower case, and a caller's body has its length.
    """

    def __init__(self, app: App, gate: Gate, tally: Tally) -> None:
        self._app, self._gate, self._tally = app, gate, tally

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in GENERATING or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            admission, receive = await self._enter(receive)
        except GateClosed as error:
            retry = [(b"retry-after", str(RETRY_S).encode())]
            await error_response(Refusal(503, str(error), headers=retry))(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, send, admission)
        finally:
            self._gate.leave(admission)

    async def _enter(self, receive: Receive) -> tuple[Admission, Receive]:
        """A place inside, and what is still to be received. ClientLeft where the client does not wait for it."""
        heard: list[Message] = []
        if not self._gate.is_open:
            await self._opened_before_it_leaves(receive, heard)
        return self._gate.enter(), given_first(heard, receive) if heard else receive

    async def _opened_before_it_leaves(self, receive: Receive, heard: list[Message]) -> None:
        leaving = asyncio.ensure_future(_until_it_leaves(receive, heard))
        try:
            while not self._gate.is_open:
                opening = asyncio.ensure_future(self._gate.opened())
                try:
                    await asyncio.wait([opening, leaving], return_when=asyncio.FIRST_COMPLETED)
                    if not opening.done():
                        raise ClientLeft
                    opening.result()
                finally:
                    opening.cancel()
        finally:
            leaving.cancel()

    async def _answer(self, scope: Message, receive: Receive, send: Send, admission: Admission) -> None:
        headers, held = dict(reversed(scope["headers"])), admission.fingerprint  # of doubled ones the first
        wanted = headers.get(PRECONDITION, b"").decode("latin-1").strip().strip('"')
        if wanted and wanted != held:
            text = f"this replica holds {held}, not {wanted}: ask again, or leave out if-match"
            refusal = Refusal(412, text, param="if-match", headers=[(HEADER, held.encode())])
            await error_response(refusal)(scope, receive, send)
            return
        state, asked = scope.get("state", {}), headers.get(REQUEST_ID, b"")
        reply = Reply(send, admission, hide_usage=state.get("hide_usage", False))
        try:
            await self._app(_with_request_id(scope, asked, held), reply.watch(receive), reply.send)
            if reply.left:
                raise ClientLeft
        except asyncio.CancelledError:
            reply.note_leaving()
            raise
        finally:
            self._tally.count(admission.marks[-1], reply.outcome())
            count_tokens(*reply.phases())
            if caller := state.get("caller"):
                caller.charge(reply.used_tokens(int(headers.get(LENGTH, 0))))


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
        if self._client_left:
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif not self._stream:
            await self._gather(message)
        elif piece := self._piece(message):
            await self._send(piece)

    async def _begin(self, message: Message) -> None:
        self.status = message["status"]
        kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
        self._stream = any(kind.startswith(EVENT_STREAM) for kind in kinds)
        if self._stream:
            await self._send(self._marked(message, None))
        else:
            self._start = message

    async def _gather(self, message: Message) -> None:
        self._held += message.get("body", b"")
        if message.get("more_body", False):
            return
        whole = bytes(self._held)
        self._last, self._done = whole, True
        if self.status < 400:
            whole = stamp_json(whole, self._admission.fingerprint)
        await self._send(self._marked(self._start, len(whole)))
        await self._send({"type": "http.response.body", "body": whole})

    def _piece(self, message: Message) -> Message | None:
        """What goes out of a piece of a stream, whose tokens are noted."""
        events, self._done = message.get("body", b""), not message.get("more_body", False)
        self._last = events if b"_tokens" in events else self._last
        events = without_usage_event(events) if self._hides_usage else events
        self._events += events.count(b"data: {")
        if not events and not self._done:
            return None
        return {**message, "body": stamp_event(events, self._admission.fingerprint)}

    def _marked(self, start: Message, length: int | None) -> Message:
        replaced = (HEADER, LENGTH) if length is not None else (HEADER,)
        headers = [pair for pair in start.get("headers", ()) if pair[0].lower() not in replaced]
        headers.append((HEADER, self._admission.fingerprint.encode()))
        if length is not None:
            headers.append((LENGTH, str(length).encode()))
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

    @property
    def left(self) -> bool:
        """The client went away before the reply was whole."""
        return self._client_left and not self._done

    def outcome(self) -> dict[str, Any]:
        """What the tally keeps. A reply is failed when the server broke it off or answered 5xx."""
        left = self.left
        failed = not left and (not self._done or self.status >= 500)
        seconds = time.monotonic() - self._began
        return {"failed": failed, "left": left, "output_tokens": self.output_tokens, "seconds": seconds}


async def _until_it_leaves(receive: Receive, heard: list[Message]) -> None:
    """What comes before is kept in `heard`."""
    while (message := await receive())["type"] != "http.disconnect":
        heard.append(message)


def _with_request_id(scope: Message, asked: bytes, mark: str) -> Message:
    """The engine names a reply after `x-request-id`; with the mark in front a reply can be traced to its weights."""
    own = _NO_NAME.sub("", asked.decode("latin-1"))[:64] or uuid.uuid4().hex
    headers = [pair for pair in scope["headers"] if pair[0] != REQUEST_ID]
    # An id may occur twice when a client repeats its own; the engine refuses a second request of a running id.
    unique = f"{mark}-{own}-{_NAMES.getrandbits(32):08x}"
    return {**scope, "headers": [*headers, (REQUEST_ID, unique.encode())]}
