"""ALP, the adaptive length penalty of "Just Enough Thinking" (arXiv 2506.05256)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class Alp:
    """s - beta * max(p, 1 / K) * L / N: p is the share of the group's K traces that are right, so tokens cost more
    where the problem is easy. Wrong traces pay too.

    The normaliser N and the value of beta are unclear to us: here N is the longest response, which makes beta the cost
    of such a response to a problem that is always solved, and 0.2 is assumed. No wrong trace ranks above a right one,
    since beta is below 1.
    """

    beta: float = 0.2

    name: ClassVar[str] = "alp"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("beta", self.beta, "a number above 0 and below 1", lambda value: 0 < value < 1)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        price = self.beta * max(sum(o.correct for o in outcomes), 1) / max(len(outcomes), 1) / max_length
        return over_width([o.correct - price * o.length for o in outcomes], width)
