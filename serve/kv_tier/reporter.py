"""Something done every few seconds in a thread of its own, such as telling what a tier has done."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve.kv_tier.weights_mark import write_counters

PERIOD_S = 1.0
STOP_DEADLINE_S = 10.0

logger = logging.getLogger(__name__)


class Every:
    """Calls `act` every `period_s` seconds, and at `now()`. What fails in it is counted, and the first logged."""

    def __init__(self, period_s: float, act: Callable[[], None], name: str) -> None:
        self._period_s, self._act, self._name = period_s, act, name
        self._due, self._over, self.failures = threading.Event(), False, 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def now(self) -> None:
        """Does it without waiting for the period's end."""
        self._due.set()

    def stop(self) -> None:
        """Once more, then no longer."""
        self._over = True
        self._due.set()
        self._thread.join(STOP_DEADLINE_S)

    def _run(self) -> None:
        while not self._over:
            self._due.wait(self._period_s)
            self._due.clear()
            try:
                self._act()
            except Exception as error:  # noqa: BLE001 - the thread goes on; the count is told
                self.failures += 1
                if self.failures == 1:
                    logger.warning("%s: %s", self._name, error)


class Reporter(Every):
    """Writes what `state()` returns into `folder` for the replica to read, when it has changed."""

    def __init__(self, folder: Path, tier: str, state: Callable[[], dict[str, Any]]) -> None:
        self._folder, self._tier, self._state = folder, tier, state
        self._told: dict[str, Any] | None = None
        super().__init__(PERIOD_S, self._tell, f"kv-report-{tier}")

    def _tell(self) -> None:
        state = self._state()
        if state != self._told:
            write_counters(self._folder, self._tier, state)
            self._told = state
