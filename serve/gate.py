"""The gate before the engine: every request enters it, knows the weights it runs on, and is waited for by a swap."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Admission:
    """One request inside the gate. `marks` are the fingerprints of all weights that may have made its tokens."""

    def __init__(self, mark: str) -> None:
        self.marks = [mark]

    @property
    def fingerprint(self) -> str:
        """One mark, or several joined by `+` when weights were swapped under the running request."""
        return "+".join(self.marks)


class Gate:
    """Lets requests in while open; closed, they wait in order while those inside finish.

    Lives on one event loop. It opens for the first time with `open(mark)`: before that no weights are confirmed and
    no request may run.
    """

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._inside: set[Admission] = set()
        self.mark: str | None = None
        self.waiting = 0
        self.mixed = 0  # requests that ran across a swap

    @property
    def inside(self) -> int:
        return len(self._inside)

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[Admission]:
        """Waits until the gate is open, then holds a place inside it."""
        self.waiting += 1
        try:
            await self._opened.wait()
        finally:
            self.waiting -= 1
        admission = Admission(self.mark or "")
        self._inside.add(admission)
        self._idle.clear()
        try:
            yield admission
        finally:
            self._inside.discard(admission)
            if not self._inside:
                self._idle.set()

    async def close(self, drain_s: float) -> bool:
        """Closes the gate and waits at most `drain_s` seconds for those inside. True when it is empty."""
        self._opened.clear()
        try:
            await asyncio.wait_for(self._idle.wait(), drain_s)
        except TimeoutError:
            return False
        return True

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def note(self, mark: str) -> None:
        """The weights of `mark` are in the engine from now on: requests still inside are marked as mixed."""
        for admission in self._inside:
            if admission.marks[-1] != mark:
                admission.marks.append(mark)
                self.mixed += 1

    def open(self, mark: str) -> None:
        """Opens for requests that run on the weights of `mark`."""
        self.note(mark)
        self.mark = mark
        self._opened.set()
