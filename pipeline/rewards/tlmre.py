"""TLMRE, "Training Language Models to Reason Efficiently" (arXiv 2502.04463)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import Baseline, FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class Tlmre:
    """1 - alpha * sigmoid((L - mean) / std) if right, 0 if wrong; mean and std are over the right responses of the
    group (github.com/Zanette-Labs/efficient-reasoning), compared leave-one-out (RLOO) as there.

    alpha 0.1 is the value of the authors' script. Which standard deviation they use is unclear to us: here it is the
    sample one, and where it is 0 or there is one right response the quotient is 0. A response without end-of-sequence
    token gets 0 there; a reward sees no tokens, so here a response of the full `max_length` counts as cut off.
    No wrong trace ranks above a right one, since alpha is below 1.
    """

    alpha: float = 0.1

    name: ClassVar[str] = "tlmre"
    needs_prefix: ClassVar[bool] = False
    baseline: ClassVar[Baseline] = "leave_one_out"

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, "a number above 0 and below 1", lambda value: 0 < value < 1)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        right_G = np.array([o.correct and o.length < max_length for o in outcomes], dtype=bool)
        lengths_G = np.array([o.length for o in outcomes], dtype=np.float64)
        right_lengths = lengths_G[right_G]
        spread = right_lengths.std(ddof=1) if len(right_lengths) > 1 else 0.0
        away_G = (lengths_G - right_lengths.mean()) / spread if spread > 0 else np.zeros(len(lengths_G))
        return over_width(np.where(right_G, 1 - self.alpha * _sigmoid(away_G), 0.0), width)


def _sigmoid(values: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), written so that it cannot overflow."""
    return 0.5 * (1 + np.tanh(0.5 * values))
