"""LASER, "Learn to Reason Efficiently with Adaptive Length-based Reward Shaping" (arXiv 2505.15612)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_number, check_tokens, tokens_within
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class Laser:
    """A step: 1 + bonus if right within `target` tokens, 1 if right and longer, `wrong` otherwise.

    bonus 0.5 and wrong -0.5 as in github.com/hkust-nlp/Laser; the target there is one of several tried, the default
    here is half the longest response. No wrong trace ranks above a right one, since `wrong` is at most 1.
    """

    target: int | None = None
    bonus: float = 0.5
    wrong: float = -0.5

    name: ClassVar[str] = "laser"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_tokens("target", self.target)
        check_number("bonus", self.bonus, "a number above 0", lambda value: value > 0)
        check_number("wrong", self.wrong, "a number below 1, what a right answer gets", lambda value: value < 1)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        target = tokens_within("target", self.target, 0.5, max_length)
        return over_width(step_rewards(outcomes, target, self.bonus, self.wrong), width)


def step_rewards(outcomes: Sequence[Outcome], target: int, bonus: float, wrong: float) -> list[float]:
    """Sequence rewards [G] of the step at `target` tokens."""
    return [1 + bonus * (o.length <= target) if o.correct else wrong for o in outcomes]
