"""What a judge is: it reads one segment alone and says how likely it states the reference answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.config import UserError, nearest
from pipeline.config.schema import Judge as JudgeConfig


@dataclass(frozen=True)
class JudgeItem:
    """One question to a judge: does `segment_text` state an answer equal to `gold` (paper eq. 7)?

    `problem` is the raw question, without chat template or suffix.
    """

    problem: str
    gold: str
    segment_text: str


class SegmentJudge(Protocol):
    """A judge. The verdict is yes where the probability reaches judge.threshold."""

    def probabilities(self, items: Sequence[JudgeItem]) -> list[float]:
        """Probability of yes for each item, in [0, 1]; NaN where this item could not be judged (counted, taken as no).
        May raise: then the whole batch counts as failed."""
        ...


JUDGES: dict[str, Callable[[JudgeConfig], SegmentJudge]] = {}


def register_judge(name: str, make: Callable[[JudgeConfig], SegmentJudge]) -> None:
    """Offer a judge under `name` (judge.name)."""
    JUDGES[name] = make


def build_judge(config: JudgeConfig) -> SegmentJudge:
    """The judge a run asks for. Raises UserError for an unknown name."""
    if config.name not in JUDGES:
        raise UserError(f"judge.name is '{config.name}', which no judge has{nearest(config.name, JUDGES)}")
    return JUDGES[config.name](config)
