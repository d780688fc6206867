"""The gate before the engine: every request enters it, knows the weights it runs on, and is waited for by a swap."""

import asyncio


class Admission:
    """One request inside the gate. `marks` are those of all weights that may have made its tokens, `fingerprint` is one
    mark, or several joined by `+` when weights were swapped under the running request."""

    def __init__(self, mark: str) -> None:
        self.marks, self.fingerprint = [mark], mark

    def add(self, mark: str) -> None:
        """Other weights are in the engine now."""
        self.marks.append(mark)
        self.fingerprint = "+".join(self.marks)


class GateClosed(RuntimeError):
    """A request that the gate does not let in, and why."""


class Gate:
    """Lets requests in while open; closed, they wait in order while those inside finish.

    Lives on one event loop. It opens for the first time with `open(mark)`: before that no weights are confirmed and
    no request may run. A request waits at most `longest_wait_s` (None: as long as it takes), and not at all once the
    gate has failed: then only `open` lets requests in again.
    """

    def __init__(self, longest_wait_s: float | None = None) -> None:
        self._longest_wait_s = longest_wait_s
        self._settled = asyncio.Event()  # open or failed: nobody waits
        self._failure: str | None = None
        self._closed_for = "its first weights"
        self._idle = asyncio.Event()
        self._idle.set()
        self._inside: set[Admission] = set()
        self.mark: str | None = None
        self.waiting = 0
        self.mixed = 0  # requests that ran across a swap

    @property
    def inside(self) -> int:
        return len(self._inside)

    async def opened(self) -> None:
        """Waits until the gate is open. GateClosed when it does not open."""
        if self._failure is None and not self._settled.is_set():
            await self._wait()
        self._check()

    def enter(self) -> Admission:
        """Takes a place inside the open gate, which `leave` gives back."""
        self._check()
        admission = Admission(self.mark or "")
        self._inside.add(admission)
        self._idle.clear()
        return admission

    def _check(self) -> None:
        if self._failure is not None:
            raise GateClosed(f"this replica serves no more: {self._failure}")

    def leave(self, admission: Admission) -> None:
        """The request has ended."""
        self._inside.discard(admission)
        if not self._inside:
            self._idle.set()

    async def _wait(self) -> None:
        self.waiting += 1
        try:
            await asyncio.wait_for(self._settled.wait(), self._longest_wait_s)
        except TimeoutError:
            raise GateClosed(
                f"this replica waits for {self._closed_for}, and that took longer than {self._longest_wait_s:g} s; "
                "try again"
            ) from None
        finally:
            self.waiting -= 1

    async def close(self, drain_s: float, swap_to: str) -> bool:
        """Closes the gate for a swap to the weights of that mark and waits at most `drain_s` seconds for those inside.
        True when it is empty."""
        self._closed_for = f"the swap to {swap_to}"
        self._settled.clear()
        if not self._inside:
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), drain_s)
        except TimeoutError:
            return False
        return True

    @property
    def is_open(self) -> bool:
        return self._settled.is_set() and self._failure is None

    def fail(self, reason: str) -> None:
        """No weights can serve: those who wait and those who come are told so, until `open`."""
        self._failure = reason
        self._settled.set()

    def note(self, mark: str) -> None:
        """The weights of `mark` are in the engine from now on: requests still inside are marked as mixed."""
        for admission in self._inside:
            if admission.marks[-1] != mark:
                admission.add(mark)
                self.mixed += 1

    def open(self, mark: str) -> None:
        """Opens for requests that run on the weights of `mark`."""
        self.note(mark)
        self.mark, self._failure = mark, None
        self._settled.set()
