"""The way back: a candidate is taken off the endpoint again, whatever goes wrong meanwhile."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from pipeline.config import UserError
from serve import client
from serve.policy import Policy, Wanted

logger = logging.getLogger(__name__)
# A dashboard that does not answer is told as a UserError.
FAILURES = (UserError, *client.FAILURES)
PAUSE_S = 1.0


class Changeable(Protocol):
    """The endpoint. Its changes return once confirmed and raise one of `FAILURES` otherwise."""

    def wanted(self) -> Wanted:
        """What the deployment asks its replicas to serve."""
        ...

    def end_canary(self) -> object:
        """Without a canary it only confirms the deployment's policy."""
        ...

    def swap(self, policy: Policy) -> object:
        """Ends a canary."""
        ...


def take_back(
    endpoint: Changeable,
    candidate: Policy,
    present: Policy,
    within_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Empty once the replicas have confirmed `present` again; else one sentence on what is left and what to do.

    Nothing is changed where the endpoint does not ask for `candidate` (any more): then nothing was begun, or another
    command has changed it since. Tried again for `within_s` seconds; an interrupt waits until it is over.
    """
    end, hint, tried = clock() + within_s, "python -m jobs.canary end", False
    with uninterrupted():
        while True:
            try:
                wanted = endpoint.wanted()
                if candidate.same_weights(wanted.policy) and not candidate.same_weights(present):
                    hint, tried = "python -m jobs.rollback --to NUMBER", True
                    endpoint.swap(present)
                elif candidate.same_weights(wanted.canary) or (tried and _is_back(wanted, present)):
                    tried = True
                    endpoint.end_canary()
                return ""
            except FAILURES as error:
                left = end - clock()
                if left <= 0:
                    return _told(candidate, within_s, error, hint)
                logger.warning("%s is not taken back yet (%.0f s left): %s", candidate.fingerprint, left, error)
            sleep(PAUSE_S)


def _is_back(wanted: Wanted, present: Policy) -> bool:
    """It was asked for already, and only has to be confirmed."""
    return wanted.canary is None and present.same_weights(wanted.policy)


def _told(candidate: Policy, within_s: float, error: Exception, hint: str) -> str:
    return (
        f"{candidate.fingerprint} could not be taken back within {within_s:.0f} s and may still be served "
        f"({str(error) or type(error).__name__}): run `{hint}`"
    )


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds SIGINT and SIGTERM back until the block is done; only in the main thread, where they arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    endings = (signal.SIGINT, signal.SIGTERM)
    former = {ending: signal.signal(ending, lambda number, frame: came.append(number)) for ending in endings}
    try:
        yield
    finally:
        for ending, handler in former.items():
            signal.signal(ending, handler)
        if came:
            signal.raise_signal(came[0])
