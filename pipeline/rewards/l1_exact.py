"""L1-Exact, "L1: Controlling How Long A Reasoning Model Thinks With Reinforcement Learning" (arXiv 2503.04697)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width
from pipeline.rewards.token_budget import TokenBudget, targets


@dataclass(frozen=True)
class L1Exact(TokenBudget):
    """s - alpha * |n - L|: s is 1 if right and 0 if wrong, n the budget named in the prompt (github.com/cmu-l3/l1).

    The paper draws n between 100 and 4,000 tokens and has alpha 3e-4; with short responses give a larger one (1 over
    the longest response makes the two terms alike). A wrong trace at its budget can rank above a right one far from
    it. Evaluation asks the problems as they are; to ask with a budget put the sentence into `problems.prompt_suffix`.
    """

    note: str = "Think for {tokens} tokens."

    name: ClassVar[str] = "l1_exact"
    needs_prefix: ClassVar[bool] = False

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        pairs = zip(outcomes, targets(outcomes), strict=True)
        return over_width([o.correct - self.alpha * abs(target - o.length) for o, target in pairs], width)
