"""An endpoint without a model, for the tests of the page: vLLM's chunks, replicas with weights of their own, keys."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from serve.policy import fingerprint
from serve.ui import routes

DIGESTS = {2: "2b" * 32, 5: "5e" * 32, 6: "6f" * 32}
THINKING = {
    2: "7 + 8 = 15. 15 - 4 = 11. Wait, let me check that again. 7 + 8 = 15. 15 - 4 = 11.",
    5: "15 - 4 = 11.",
    6: "11.",
}
ANSWER = "The answer is \\boxed{11}"


def pieces(text):
    """A token a word, as an engine would stream them."""
    return [word if index == 0 else f" {word}" for index, word in enumerate(text.split(" "))]


@dataclass
class Replica:
    rank: int
    version: int
    canary: bool = False
    swaps: int = 0
    served: dict = field(default_factory=dict)

    @property
    def mark(self):
        return fingerprint(self.version, DIGESTS[self.version])

    def count(self, mark, tokens):
        seen = self.served.setdefault(mark, {"requests": 0, "failed": 0, "output_tokens": 0, "seconds": []})
        seen["requests"] += 1
        seen["output_tokens"] += tokens
        seen["seconds"].append(0.1)

    def swap(self, version):
        self.version, self.swaps = version, self.swaps + 1

    def state(self):
        return {
            "replica": f"replica-{self.rank}", "rank": self.rank, "pid": 100 + self.rank, "canary": self.canary,
            "version": self.version, "digest": DIGESTS[self.version], "parity": 0.00123, "swaps": self.swaps,
            "swap_seconds": 0.5, "pause_seconds": 0.042, "drain_seconds": 0.3, "verify_seconds": 0.1, "bytes": 1,
            "drained": True, "refusals": 0, "last_refusal": None, "inside": 1, "waiting": 0, "mixed": 0,
            "served": self.served,
        }  # fmt: skip


@dataclass
class Endpoint:
    """What the endpoint does next; `asked` holds the bodies of completions, `refused` how many 412 it answered."""

    replicas: list = field(default_factory=lambda: [Replica(0, 5)])
    key: str | None = None
    admin: bool = True
    limited: int = 0  # so many requests get 429
    pause_s: float = 0.0  # between two tokens
    thinking: str | None = None
    answer: str = ANSWER
    swap_under_reply: int | None = None  # the version that comes while a reply is written
    asked: list = field(default_factory=list)
    refused: int = 0
    cut_off: int = 0
    url: str = ""

    def _error(self, status, message, **headers):
        body = {"error": {"message": message, "type": "error", "param": None, "code": status}}
        return JSONResponse(body, status, {name.replace("_", "-"): value for name, value in headers.items()})

    def _no_key(self, request):
        return self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}"

    async def models(self, request: Request) -> Response:
        if self._no_key(request):
            return self._error(401, "no key")
        return JSONResponse({"object": "list", "data": [{"id": "policy", "object": "model"}]})

    async def versions(self, request: Request) -> Response:
        if self._no_key(request) or not self.admin:
            return self._error(401 if self._no_key(request) else 403, "needs the scope admin")
        return JSONResponse({"replicas": [replica.state() for replica in self.replicas]})

    async def chat(self, request: Request) -> Response:
        if self._no_key(request):
            return self._error(401, "no key")
        if self.limited:
            self.limited -= 1
            return self._error(429, "slow down", retry_after="2")
        replica = self.replicas[(len(self.asked) + self.refused) % len(self.replicas)]
        wanted = request.headers.get("if-match")
        if wanted and wanted != f'"{replica.mark}"':
            self.refused += 1
            return self._error(412, f"this replica serves {replica.mark}")
        self.asked.append(await request.json())
        return StreamingResponse(self._reply(replica), media_type="text/event-stream")

    async def _reply(self, replica) -> AsyncIterator[str]:
        marks = [replica.mark]

        def event(choices, **more):
            body = {"system_fingerprint": "+".join(marks), "id": "chatcmpl-1", "object": "chat.completion.chunk"}
            return f"data: {json.dumps(body | {'created': 1, 'model': 'policy', 'choices': choices} | more)}\n\n"

        def choice(delta, finish=None):
            return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]

        thinking, answer = pieces(self.thinking or THINKING[replica.version]), pieces(self.answer)
        done = False
        try:
            yield event(choice({"role": "assistant", "content": ""}))
            for kind, texts in (("reasoning", thinking), ("content", answer)):
                for text in texts:
                    await asyncio.sleep(self.pause_s)
                    yield event(choice({kind: text}))
                if kind == "reasoning" and self.swap_under_reply:
                    replica.swap(self.swap_under_reply)
                    marks.append(replica.mark)
            yield event(choice({"content": ""}, "stop"))
            total = len(thinking) + len(answer) + 2
            details = {"reasoning_tokens": len(thinking)}
            usage = {"prompt_tokens": 9, "total_tokens": 9 + total, "completion_tokens": total}
            yield event([], usage=usage | {"completion_tokens_details": details})
            replica.count(marks[-1], total)
            yield "data: [DONE]\n\n"
            done = True
        finally:
            self.cut_off += not done

    def app(self):
        own = [
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/admin/version", self.versions),
        ]
        return Starlette(routes=[*own, *routes()])


@contextmanager
def serving(endpoint):
    """The endpoint on a free loopback port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        free.listen()
        endpoint.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        config = uvicorn.Config(endpoint.app(), log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([free],), daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < deadline, "the test's endpoint does not start"
            time.sleep(0.01)
        try:
            yield endpoint
        finally:
            server.should_exit = True
            thread.join(10)
