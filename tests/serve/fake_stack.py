"""The whole HTTP app of a replica over an engine that only counts, behind real uvicorn on a loopback port."""

import asyncio
import inspect
import json
import socket
import threading
from collections import deque
from contextlib import contextmanager

import uvicorn
from ray.serve._private.common import DeploymentID, RequestProtocol
from ray.serve._private.replica import ReplicaMetricsManager
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from serve.access import AccessSettings
from serve.endpoint_app import EndpointApp
from serve.gate import Gate
from serve.policy import Policy
from serve.short_path import ShortPath
from serve.swap import Swapper
from serve.tally import Tally

V1, V2 = Policy(1, "/1", "d1" * 32), Policy(2, "/2", "d2" * 32)
LETTERS = {1: "a", 2: "b"}


class FakeEngine:
    """An ASGI app with vLLM's routes: version 1 says only `a`, version 2 only `b`, one a token.

    `slots` requests run at once, the others wait. Each that entered is at last finished or aborted. Like vLLM it hears
    from `receive` that a client has left. It is also the engine of a swap; while paused it makes no tokens.
    """

    def __init__(self, slots, token_s):
        self.token_s, self.version = token_s, 1
        self.entered = self.waiting = self.running = self.finished = self.aborted = 0
        self.asked = []  # (scope type, path) of what came through
        self._slots, self._going = asyncio.Semaphore(slots), asyncio.Event()
        self._going.set()
        work = [Route(path, self._generate, methods=["POST"]) for path in GENERATING]
        count = [Route(path, self._answer, methods=["POST"]) for path in ("/tokenize", "/detokenize")]
        read = [Route(path, self._answer) for path in ("/v1/models", "/v1/models/{name:path}", "/health")]
        metrics = Route("/metrics", lambda request: PlainTextResponse("# metrics"))
        self._app = Starlette(routes=[*work, *count, *read, metrics])

    async def __call__(self, scope, receive, send):
        self.asked.append((scope["type"], scope.get("path")))
        await self._app(scope, receive, send)

    async def _answer(self, request):
        return JSONResponse({"path": request.url.path})

    async def _generate(self, request):
        body = await request.json()
        tokens = self._tokens(body["max_tokens"])
        if body.get("stream"):
            return StreamingResponse(_events(tokens), media_type="text/event-stream")
        whole = asyncio.create_task(_text(tokens))
        leaving = asyncio.create_task(_disconnect(request))
        await asyncio.wait([whole, leaving], return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not whole.done():
            whole.cancel()
            return JSONResponse(None)
        return JSONResponse({"id": "x", "choices": [_choice("message", whole.result())], "usage": _usage(body)})

    async def _tokens(self, count):
        self.entered += 1
        is_whole = False
        try:
            self.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting -= 1
            self.running += 1
            try:
                for _ in range(count):
                    await self._going.wait()
                    await asyncio.sleep(self.token_s)
                    yield LETTERS[self.version]
            finally:
                self.running -= 1
                self._slots.release()
            is_whole = True
        finally:
            self.finished += is_whole
            self.aborted += not is_whole

    async def pause(self, mode):
        self._going.clear()

    async def load(self, policy):
        await asyncio.sleep(0.02)
        self.version = policy.version
        return policy.digest

    async def resume(self):
        self._going.set()

    async def parity(self, policy):
        return None


GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


async def _events(tokens):
    async for token in tokens:
        yield f"data: {json.dumps({'id': 'x', 'choices': [_choice('delta', token)]})}\n\n"
    yield "data: [DONE]\n\n"


async def _text(tokens):
    return "".join([token async for token in tokens])


async def _disconnect(request):
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _choice(name, text):
    return {"index": 0, name: {"content": text}, "finish_reason": None}


def _usage(body):
    count = body["max_tokens"]
    return {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}


class CancellingServer:
    """Ray Serve's way with a client that leaves: its app hears of it through `receive`, and is cancelled at once."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        heard = asyncio.Queue()

        async def until_it_leaves():
            while True:
                message = await receive()
                heard.put_nowait(message)
                if message["type"] == "http.disconnect":
                    return

        request = asyncio.create_task(self._app(scope, heard.get, send))
        listening = asyncio.create_task(until_it_leaves())
        await asyncio.wait([request, listening], return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if not request.done():
            request.cancel()
        await asyncio.gather(request, return_exceptions=True)


class FakeReplica:
    """What the short path asks of Ray Serve's replica: the app, and figures of requests, by Serve's own names."""

    def __init__(self, app):
        self._user_callable_asgi_app, self._deployment_id = app, DeploymentID("HotSwapServer:policy", "policy")
        self._metrics_manager = self
        self.ongoing, self.requests, self.ingress = 0, deque(maxlen=8), deque(maxlen=8)
        self.handled = CancellingServer(app)

    async def handle(self, scope, receive, send):
        """Serve's own way."""
        await self.handled(scope, receive, send)

    def inc_num_ongoing_requests(self, metadata):
        assert metadata.is_direct_ingress and metadata.protocol == RequestProtocol.HTTP
        self.ongoing += 1

    def dec_num_ongoing_requests(self, metadata):
        assert metadata.is_direct_ingress and metadata.protocol == RequestProtocol.HTTP
        self.ongoing -= 1

    def record_request_metrics(self, **figures):
        inspect.signature(ReplicaMetricsManager.record_request_metrics).bind(self, **figures)
        self.requests.append(figures)

    def record_ingress_request_metrics(self, **figures):
        inspect.signature(ReplicaMetricsManager.record_ingress_request_metrics).bind(self, **figures)
        self.ingress.append(figures)


class Stack:
    """A replica without Ray: gate, tally, swaps and the HTTP app. `settings` are those of its access layer."""

    def __init__(self, *, slots=1000, token_s=0.002, **settings):
        self.gate, self.tally, self.engine = Gate(), Tally(), FakeEngine(slots, token_s)
        self.swapper = Swapper(self.engine, self.gate, lambda policy: 1, drain_s=60)
        access = AccessSettings(**settings)
        self.app = EndpointApp(
            self.engine, self.gate, self.tally, access, readiness=self._readiness, states=self._states
        )
        self.replica, self.short_path, self.url = FakeReplica(self.app), ShortPath(), ""

    def as_ray_serves(self):
        """The app behind Ray Serve's way with requests, and the short path around it."""
        return self.short_path.around(self.replica.handle)

    async def _readiness(self, deadline_s):
        return None if self.gate.is_open else "no weights are confirmed yet"

    async def _states(self):
        return {"replicas": [self.swapper.state()], "silent": []}

    def counts(self):
        """What holds on to requests, all 0 when none is there."""
        return {
            "access": self.app.access.inside,
            "gate inside": self.gate.inside,
            "gate waiting": self.gate.waiting,
            "engine running": self.engine.running,
            "engine waiting": self.engine.waiting,
            "ongoing": self.replica.ongoing,
        }

    def submit(self, coroutine):
        """Runs it on the server's loop; an asyncio future of the caller's loop."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _serve(self, server, sockets, started):
        self._loop = asyncio.get_running_loop()
        started.set()
        await server.serve(sockets)


@contextmanager
def serving(stack, policy=V1, app=None):
    """The stack (`app`: another way to it) on a free loopback port, in a thread; with `policy` it has opened its
    gate."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        free.listen(512)
        stack.address = free.getsockname()
        stack.url = f"http://127.0.0.1:{stack.address[1]}"
        # The log's settings stay those of the test. A proxy in front writes the access log with addresses.
        config = uvicorn.Config(
            app or stack.as_ray_serves(), log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        server, started = uvicorn.Server(config), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(stack._serve(server, [free], started)), daemon=True)
        thread.start()
        assert started.wait(30), "the server's thread does not start"
        try:
            if policy:
                asyncio.run_coroutine_threadsafe(stack.swapper.adopt(policy), stack._loop).result(30)
            yield stack
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive(), "the server does not end within 20 s"
