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
        self._since: dict[str, float] = {}

    @contextmanager
    def note(self, what: str) -> Iterator[None]:
        """Marks `what` as waited for inside the block."""
        self._since[what] = time.monotonic()
        try:
            yield
        finally:
            self._since.pop(what, None)

    async def within(self, what: str, seconds: float, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`; DeadlineExceeded, naming `what`, after `seconds`."""
        with self.note(what):
            try:
                return await asyncio.wait_for(awaitable, seconds)
            except TimeoutError:
                raise DeadlineExceeded(f"waited {seconds:g} s for {what}") from None

    def current(self) -> list[tuple[str, float]]:
        """(what, seconds so far), longest first."""
        now = time.monotonic()
        return sorted(((what, now - since) for what, since in self._since.items()), key=lambda pair: -pair[1])
