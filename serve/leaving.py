"""Tells the engine's app that a client has left, however the server tells us."""

import asyncio

from serve.asgi import App, Message, Receive, Send

ENDING_S = 10.0  # for the app to end once it knows
DISCONNECT: Message = {"type": "http.disconnect"}
UNWATCHED = "unwatched"  # in the `scope["state"]` of requests that Ray Serve neither watches nor cancels


class LeavingMiddleware:
    """Around vLLM's app, which ends a generation only when it hears `http.disconnect` from `receive`. Requests on Ray
    Serve's own way are cancelled instead; a plain reply would then be computed to its end for nobody.

    So a cancelled request becomes a disconnect, and this waits until the app has ended. What the app still says is
    dropped (vLLM answers `null`): the reply counts as left, not as answered.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or UNWATCHED in scope.get("state", ()):
            await self._app(scope, receive, send)
            return
        client = Client(receive, send)
        running = asyncio.ensure_future(self._app(scope, client.receive, client.send))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            client.leave()
            try:
                await asyncio.wait([running], timeout=ENDING_S)
            finally:
                running.cancel()
            raise


class Client:
    """The two ends of a request, until its client has left."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._coming: asyncio.Future[Message] | None = None
        self._left = False

    def leave(self) -> None:
        """What waits for a message hears of it."""
        self._left = True
        if self._coming:
            self._coming.cancel()

    async def receive(self) -> Message:
        if self._left:
            return DISCONNECT
        self._coming = asyncio.ensure_future(self._receive())
        try:
            message = await self._coming
        except asyncio.CancelledError:
            if not self._left:
                raise  # the app does not wait any longer
            return DISCONNECT
        self._left |= message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        if not self._left:
            await self._send(message)
