"""The length reward of Kimi k1.5 (arXiv 2501.12599, section 2.3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class Kimi:
    """s + weight * lam if right, weight * min(0, lam) if wrong, with lam = 0.5 - (L - min) / (max - min) over the
    lengths of the whole group; lam is 0 where all are equally long.

    weight 0.4 is that of github.com/hkust-nlp/Laser, the authors give none. Left out: they add the length term only
    after a warm-up without it, and have an optimiser of their own; here GRPO's advantage is used. No wrong trace ranks
    above a right one, since a right one loses at most half the weight.
    """

    weight: float = 0.4

    name: ClassVar[str] = "kimi"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("weight", self.weight, "a number above 0 and below 2", lambda value: 0 < value < 2)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        lengths = [o.length for o in outcomes]
        shortest, span = min(lengths, default=0), max(lengths, default=0) - min(lengths, default=0)
        lams = [0.5 - (length - shortest) / span if span else 0.0 for length in lengths]
        return over_width([self._reward(o, lam) for o, lam in zip(outcomes, lams, strict=True)], width)

    def _reward(self, outcome: Outcome, lam: float) -> float:
        return 1 + self.weight * lam if outcome.correct else self.weight * min(0.0, lam)
