"""L1-Max, "L1: Controlling How Long A Reasoning Model Thinks With Reinforcement Learning" (arXiv 2503.04697)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width
from pipeline.rewards.token_budget import TokenBudget, targets


@dataclass(frozen=True)
class L1Max(TokenBudget):
    """s * clip(alpha * (n - L) + delta, 0, 1): s is 1 if right and 0 if wrong, n the budget named in the prompt.

    delta 0.5 is the paper's; alpha 3e-4 is that of L1-Exact, since the authors' value for this form is unclear to us.
    Their code also has sigmoid and additive forms, left out here, and they start from a model trained with L1-Exact.
    No wrong trace ranks above a right one. Evaluation asks the problems as they are; to ask with a budget put the
    sentence into `problems.prompt_suffix`.
    """

    note: str = "Think for maximum {tokens} tokens."
    delta: float = 0.5

    name: ClassVar[str] = "l1_max"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("delta", self.delta, "a number between 0 and 1", lambda value: 0 <= value <= 1)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        pairs = zip(outcomes, targets(outcomes), strict=True)
        rewards = [o.correct * min(max(self.alpha * (target - o.length) + self.delta, 0), 1) for o, target in pairs]
        return over_width(rewards, width)
