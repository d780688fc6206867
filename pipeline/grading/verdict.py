"""What the grader says, and the count of what it said."""

import threading
from collections import Counter
from enum import StrEnum


class Verdict(StrEnum):
    """RIGHT or WRONG are statements about the answer; UNKNOWN is a statement about the checker, which failed."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class Failure(StrEnum):
    """Why a verdict is UNKNOWN."""

    EXCEPTION = "exception"  # the checker raised
    DEADLINE = "deadline"  # the comparison ran past grading.deadline_s; its worker was ended
    POOL = "pool"  # a worker died, did not start, or none was free in time
    GOLD = "gold"  # the reference answer cannot be read


class Counters:
    """Thread-safe counts: calls, right, wrong, unknown, and unknown by reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, verdict: Verdict, failure: Failure | None = None) -> Verdict:
        """Count one verdict and hand it back."""
        with self._lock:
            self._counts.update(["calls", verdict.value])
            if failure is not None:
                self._counts[f"unknown_{failure.value}"] += 1
        return verdict

    def read(self) -> dict[str, int]:
        """All counts, zeros included."""
        names = ["calls", *(v.value for v in Verdict), *(f"unknown_{f.value}" for f in Failure)]
        with self._lock:
            return {name: self._counts[name] for name in names}
