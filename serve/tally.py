"""What a replica has answered, by the weights that made it: the figures a canary is judged by."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

KEPT_SECONDS = 512  # latest latencies by mark
KEPT_MARKS = 8  # latest weights


@dataclass
class Served:
    """Replies of one mark. `left`: the client went away first. Those and failed ones have neither latency nor tokens
    here. `squared_tokens`: the sum of the squares of the others' output tokens."""

    requests: int = 0
    failed: int = 0
    left: int = 0
    output_tokens: int = 0
    squared_tokens: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_SECONDS))


class Tally:
    """Counts replies by mark; lives on one event loop."""

    def __init__(self) -> None:
        self._by_mark: dict[str, Served] = {}

    def count(self, mark: str, outcome: dict[str, Any]) -> None:
        """Adds a reply: `failed` and `left` (bool), `output_tokens`, `seconds`."""
        served = self._by_mark.pop(mark, None) or Served()
        self._by_mark[mark] = served  # the latest last
        served.requests += 1
        served.failed += outcome["failed"]
        served.left += outcome["left"]
        if not (outcome["failed"] or outcome["left"]):
            served.output_tokens += outcome["output_tokens"]
            served.squared_tokens += outcome["output_tokens"] ** 2
            served.seconds.append(outcome["seconds"])
        while len(self._by_mark) > KEPT_MARKS:
            del self._by_mark[next(iter(self._by_mark))]

    def state(self) -> dict[str, dict[str, Any]]:
        """Plain data by mark; `seconds` are the latest latencies, rounded to 0.1 ms."""
        return {
            mark: {
                "requests": served.requests,
                "failed": served.failed,
                "left": served.left,
                "output_tokens": served.output_tokens,
                "squared_tokens": served.squared_tokens,
                "seconds": [round(value, 4) for value in served.seconds],
            }
            for mark, served in self._by_mark.items()
        }
