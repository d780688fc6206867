"""GRPO: one reward for the whole response, 1 if correct and 0 if not. The plain baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class Grpo:
    """Correctness alone; length and the necessary prefix play no part."""

    name: ClassVar[str] = "grpo"
    needs_prefix: ClassVar[bool] = False

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W]: the sequence reward broadcast over all W positions, padding included.

        Since each row is constant, the per-position advantage equals the usual sequence-level one.
        """
        check_outcomes(outcomes, width, max_length)
        return over_width([outcome.correct for outcome in outcomes], width)
