"""When a judge is not to be trusted: it fails too often, or what it says is absurd. Pure.

A judge that says no to everything takes the whole thinking for necessary, and one that says yes to everything takes the
first segment for the prefix: both bend the training signal without any error. The first shows in right traces that have
no right segment (misses). The second does not show in the traces themselves, since a good model may well state its
answer in the first segment; so the judge is also asked *control questions* whose answer is known to be no: a segment
beside another problem's question and answer.
"""

from collections import deque
from collections.abc import Sequence

from pipeline.config.schema import Judge as JudgeConfig
from pipeline.judge.base import JudgeItem
from pipeline.judge.waves import PrefixRequest, PrefixResult

WINDOW, LEAST_CALLS = 1000, 50  # the failure rate is over the last 1000 items, once there are 50
TRACES, LEAST_TRACES = 500, 50  # the miss rate is over the last 500 right traces, once there are 50
CONTROLS, LEAST_CONTROLS = 256, 16
CONTROL_EVERY = 8  # one control question for so many requests


class JudgeFailure(RuntimeError):
    """The judge fails too often, or its verdicts are absurd; they would bend the training signal."""


class FailureWatch:
    """Share of failed items among the last ones; raises JudgeFailure above the limit."""

    def __init__(self, max_rate: float, who: str = "judge") -> None:
        self._max_rate, self._who, self._recent = max_rate, who, deque[bool](maxlen=WINDOW)

    def add(self, failed: Sequence[bool], last_error: str) -> None:
        """Note items; raises where more than `max_rate` of at least 50 have failed."""
        self._recent.extend(failed)
        failures = sum(self._recent)
        if len(self._recent) >= LEAST_CALLS and failures > self._max_rate * len(self._recent):
            raise JudgeFailure(
                f"the {self._who} failed on {failures} of its last {len(self._recent)} segments, above "
                f"judge.max_failure_rate ({self._max_rate:g}); last failure: {last_error or 'unknown'}"
            )


class SenseWatch:
    """Misses and control questions, over the last ones of each."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._missed, self._false_yes = deque[bool](maxlen=TRACES), deque[bool](maxlen=CONTROLS)

    def add(self, results: Sequence[PrefixResult], controls: Sequence[bool]) -> None:
        """Note right traces, and the verdicts on control questions (true: it said yes)."""
        self._missed.extend(result.yes_index is None for result in results)
        self._false_yes.extend(controls)

    def complaints(self) -> dict[str, str]:
        """Option that is exceeded -> what is wrong, in one sentence; empty when all is well."""
        found = {}
        missed, asked = sum(self._missed), len(self._missed)
        if asked >= LEAST_TRACES and missed > self._config.max_miss_rate * asked:
            found["max_miss_rate"] = (
                f"the judge found no right segment in {missed} of the last {asked} right traces, above "
                f"judge.max_miss_rate ({self._config.max_miss_rate:g}); it says no to too much"
            )
        wrong, asked = sum(self._false_yes), len(self._false_yes)
        if asked >= LEAST_CONTROLS and wrong > self._config.max_false_yes_rate * asked:
            found["max_false_yes_rate"] = (
                f"the judge said yes to {wrong} of the last {asked} control questions (a segment beside another "
                f"problem's answer), above judge.max_false_yes_rate ({self._config.max_false_yes_rate:g}); it says yes "
                "to too much"
            )
        return found


def control_questions(requests: Sequence[PrefixRequest]) -> list[JudgeItem]:
    """For every eighth request its first segment, beside the question and answer of the next request whose answer is
    another one; none where all ask for the same answer."""
    found = []
    for at in range(0, len(requests), CONTROL_EVERY):
        others = (*requests[at + 1 :], *requests[:at])
        other = next((r for r in others if _plain(r.gold) != _plain(requests[at].gold)), None)
        if other is not None and requests[at].texts:
            found.append(JudgeItem(other.problem, other.gold, requests[at].texts[0]))
    return found


def _plain(gold: str) -> str:
    return "".join(gold.casefold().split())
