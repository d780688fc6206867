"""Every wait has a deadline and says whom it waits for."""

import asyncio
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class DeadlineExceeded(RuntimeError):
    """A wait ran past its deadline; the text names what was waited for and for how long."""


class Waits:
    """What is being waited for now, oldest first, so that a stall can be reported while it lasts."""

    def __init__(self) -> None:
        self._since: dict[object, tuple[str, float]] = {}

    @contextmanager
    def note(self, what: str) -> Iterator[None]:
        """Marks `what` as waited for inside the block; several may wait for the same."""
        waiter = object()
        self._since[waiter] = (what, time.monotonic())
        try:
            yield
        finally:
            del self._since[waiter]

    async def within(self, what: str, seconds: float, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`; DeadlineExceeded, naming `what`, after `seconds`."""
        with self.note(what):
            try:
                async with asyncio.timeout(seconds) as limit:
                    return await awaitable
            except TimeoutError:
                if not limit.expired():  # it is the awaited one's own
                    raise
                raise DeadlineExceeded(f"waited {seconds:g} s for {what}") from None

    def current(self) -> list[tuple[str, float]]:
        """(what, seconds so far), longest first; of several waits for the same, the longest."""
        now = time.monotonic()
        longest: dict[str, float] = {}
        for what, since in self._since.values():
            longest[what] = max(longest.get(what, 0.0), now - since)
        return sorted(longest.items(), key=lambda pair: -pair[1])
