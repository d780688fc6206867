"""Tells the engine's app that a client has left, however the server tells us."""

import asyncio

from serve.asgi import App, Message, Receive, Send

ENDING_S = 10.0  # for the app to end once it knows


class LeavingMiddleware:
    """Around vLLM's app, which ends a generation only when it hears `http.disconnect` from `receive`. Ray Serve also
    cancels the request; a plain reply would then be computed to its end for nobody.

    So a cancelled request becomes a disconnect, and this waits until the app has ended. What the app still says is
    dropped (vLLM answers `null`): the reply counts as left, not as answered.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left = asyncio.Event()
        running = asyncio.ensure_future(self._app(scope, _hearing(receive, left), _unless(left, send)))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            left.set()
            try:
                await asyncio.wait([running], timeout=ENDING_S)
            finally:
                running.cancel()
            raise


def _hearing(receive: Receive, left: asyncio.Event) -> Receive:
    """`receive` that gives a disconnect as soon as `left` is set, and sets it when it hears one itself."""

    async def hearing() -> Message:
        coming, leaving = asyncio.ensure_future(receive()), asyncio.ensure_future(left.wait())
        try:
            await asyncio.wait([coming, leaving], return_when=asyncio.FIRST_COMPLETED)
            message = coming.result() if coming.done() else {"type": "http.disconnect"}
        finally:
            coming.cancel()
            leaving.cancel()
        if message["type"] == "http.disconnect":
            left.set()
        return message

    return hearing


def _unless(left: asyncio.Event, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if not left.is_set():
            await send(message)

    return sending
