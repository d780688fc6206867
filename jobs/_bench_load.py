"""Sends requests as clients do, and notes what came back."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from jobs._bench_replies import Reply
from jobs._bench_requests import Shape, body
from serve.policy import MARK_HEADER

ROUTE = "/v1/chat/completions"
Done = Callable[[Reply], object]


class Load:
    """`clients` at a time against one endpoint; `replies` in the order they ended."""

    def __init__(
        self, http: httpx.AsyncClient, url: str, model: str, clients: int, *, temperature: float = 1.0
    ) -> None:
        self.http, self.url, self.model, self.clients = http, url, model, clients
        self.temperature = temperature
        self.replies: list[Reply] = []

    async def run(self, shapes: Sequence[Shape], phase: str, done: Done, until: asyncio.Event | None = None) -> int:
        """Sends `shapes`, and goes on from their beginning until `until` is set. Returns how many were sent."""
        waiting = self._shapes(shapes, until)
        sent = 0

        async def client() -> None:
            nonlocal sent
            for shape in waiting:
                sent += 1
                reply = await self.ask(shape, phase)
                self.replies.append(reply)
                done(reply)

        await asyncio.gather(*(client() for _ in range(self.clients)))
        return sent

    def _shapes(self, shapes: Sequence[Shape], until: asyncio.Event | None) -> Iterator[Shape]:
        yield from shapes
        for shape in itertools.cycle(shapes):
            if until is None or until.is_set():
                return
            yield shape

    async def ask(self, shape: Shape, phase: str) -> Reply:
        """One request, sent a second time when not one byte of a reply came (what is judged by `resent`)."""
        reply = await self._once(shape, phase)
        if not reply.unanswered:
            return reply
        again = await self._once(shape, phase)
        again.began, again.resent = reply.began, reply.error
        return again

    async def _once(self, shape: Shape, phase: str) -> Reply:
        """Errors are noted in the reply, never raised."""
        reply = Reply(shape, phase, time.monotonic())
        try:
            sent = body(shape, self.model, self.temperature)
            if shape.stream:
                async with self.http.stream("POST", self.url + ROUTE, json=sent) as response:
                    await _read_stream(response, reply)
            else:
                _read_whole(await self.http.post(self.url + ROUTE, json=sent), reply)
        except httpx.TransportError as error:
            reply.closed, reply.error = True, f"{type(error).__name__}: {error}"
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            reply.error = f"no chat completion ({type(error).__name__}: {error})"
        reply.ended = time.monotonic()
        return reply


def _head(response: httpx.Response, reply: Reply) -> None:
    reply.status, reply.header = response.status_code, response.headers.get(MARK_HEADER)


def _read_whole(response: httpx.Response, reply: Reply) -> None:
    _head(response, reply)
    if response.status_code != 200:
        reply.error = f"status {response.status_code}: {response.text[:300]}"
        return
    parsed = response.json()
    choice = parsed["choices"][0]
    reply.id, reply.finish = parsed["id"], choice["finish_reason"]
    reply.token_ids = list(choice["token_ids"])
    reply.tokens, reply.usage = len(reply.token_ids), parsed["usage"]["completion_tokens"]
    reply.saw(parsed.get("system_fingerprint"))
    reply.first, reply.done = time.monotonic(), True


async def _read_stream(response: httpx.Response, reply: Reply) -> None:
    _head(response, reply)
    if response.status_code != 200:
        reply.error = f"status {response.status_code}: {(await response.aread()).decode(errors='replace')[:300]}"
        return
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            reply.done = True
        elif line.startswith("data: "):
            _read_chunk(json.loads(line[len("data: ") :]), reply)


def _read_chunk(chunk: dict[str, Any], reply: Reply) -> None:
    if "error" in chunk:
        reply.error = f"error in the stream: {json.dumps(chunk['error'])[:300]}"
        return
    reply.id = reply.id or chunk["id"]
    reply.saw(chunk.get("system_fingerprint"))
    for choice in chunk["choices"]:
        if ids := choice.get("token_ids"):
            now = time.monotonic()
            reply.first = reply.first or now
            reply.arrivals.append(now)
            reply.token_ids += ids
            reply.tokens += len(ids)
        reply.finish = choice.get("finish_reason") or reply.finish
    if usage := chunk.get("usage"):
        reply.usage = usage["completion_tokens"]
