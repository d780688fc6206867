"""Length penalty: a right answer loses a fixed amount for each token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class LengthPenalty:
    """DECS paper (arXiv 2509.25827) eq. 4: 1 - gamma * L if right, 0 if wrong.

    The paper gives no value for gamma; 2e-5 is the default of its released code, for responses of up to 16,384
    tokens. Where all traces are right GRPO's division by the spread cancels gamma. No wrong trace ranks above a right
    one as long as gamma times the longest response stays below 1.
    """

    gamma: float = 2e-5

    name: ClassVar[str] = "length_penalty"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, "a number above 0", lambda value: value > 0)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        return over_width([1 - self.gamma * o.length if o.correct else 0.0 for o in outcomes], width)
