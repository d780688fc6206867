"""ShorterBetter (arXiv 2504.21370): each trace is measured against the shortest right one of its group."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class ShorterBetter:
    """alpha * s - beta * |L - L*|: L* is the shortest right response of the group, or the mean length where none is
    right. alpha 2 and beta 0.001 as in github.com/JingyangYi/ShorterBetter.

    A wrong trace as long as L* ranks above a right one that is more than alpha / beta tokens longer.
    """

    alpha: float = 2.0
    beta: float = 1e-3

    name: ClassVar[str] = "shorter_better"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for option in ("alpha", "beta"):
            check_number(option, getattr(self, option), "a number above 0", lambda value: value > 0)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        right = [o.length for o in outcomes if o.correct]
        best = min(right) if right else statistics.fmean(o.length for o in outcomes)
        return over_width([self.alpha * o.correct - self.beta * abs(o.length - best) for o in outcomes], width)
