"""ThinkPrune: an answer counts only if the response ends within a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.options import check_tokens, tokens_within
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class ThinkPrune:
    """Correctness of the response cut at `budget` tokens (github.com/UCSB-NLP-Chang/ThinkPrune): 1 if it is right and
    no longer than that, else 0. A cut response has no end or no answer, so it needs no second grading.

    The authors train with 4,000, then 3,000, then 2,000 tokens. Left out: the shrinking; a run has one budget
    (default: half the longest response), and the next is a run with a smaller one that starts from its weights. With
    `rollout.max_new_tokens` at the budget, plain `grpo` is this method and samples less.
    """

    budget: int | None = None

    name: ClassVar[str] = "thinkprune"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_tokens("budget", self.budget)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        budget = tokens_within("budget", self.budget, 0.5, max_length)
        return over_width([o.correct and o.length <= budget for o in outcomes], width)
