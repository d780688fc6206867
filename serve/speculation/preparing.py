"""A thread that works ahead of the engine: it takes the latest step's jobs and leaves what the engine has overtaken."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Job = TypeVar("Job")


class Preparer(Generic[Job]):
    """Calls `work` for each job of the latest `submit`, in one thread. Jobs that had not begun when the next ones came
    are dropped and counted; so are errors of `work`, the first of which is logged."""

    def __init__(self, work: Callable[[Job], None]) -> None:
        self._work = work
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._busy = False
        self.counters = dict.fromkeys(("prepared", "dropped", "errors"), 0)
        threading.Thread(target=self._run, name="draft-preparer", daemon=True).start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Work on these next; the jobs of the step before that have not begun are dropped."""
        with self._changed:
            self.counters["dropped"] += len(self._jobs)
            self._jobs = list(jobs)
            self._changed.notify_all()

    def wait(self, deadline_s: float) -> bool:
        """True once nothing is left to do, False when that is still so after the deadline. For tests and shutdown."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, deadline_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._jobs))
                job, self._busy = self._jobs.pop(0), True
            try:
                self._work(job)
                self.counters["prepared"] += 1
            except Exception:  # a draft less, and the target writes on
                self.counters["errors"] += 1
                if self.counters["errors"] == 1:
                    logging.getLogger(__name__).exception("preparing drafts failed; further failures are only counted")
