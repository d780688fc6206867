"""What a judge is: it reads one segment alone and says how likely it states the reference answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
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


class Unjudged(StrEnum):
    """Why a judge gave no probability for one item, where it can say more than NaN."""

    OVERLONG = "overlong"  # more tokens than judge.max_tokens


class SegmentJudge(Protocol):
    """A judge. The verdict is yes where the probability reaches judge.threshold.

    It may also have `describe() -> dict[str, str]`: what it is (weights, digest, options in effect). A judge that loads
    something does so there or at its first question, and raises UserError where the user gave it the wrong thing.
    """

    def probabilities(self, items: Sequence[JudgeItem]) -> list[float | Unjudged]:
        """Probability of yes for each item, in [0, 1]; NaN or the reason where this item could not be judged (counted,
        taken as no). May raise: then the whole batch counts as failed."""
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
