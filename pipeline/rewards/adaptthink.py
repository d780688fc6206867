"""AdaptThink, "Reasoning Models Can Learn When to Think" (arXiv 2505.13417)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.hooks import Steering
from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import Baseline, FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class AdaptThink:
    """s - reference + bonus * (made to skip thinking), used as the advantage as it is (no group baseline).

    A `share` of each group is made to start with the end-of-think tag, the rest is sampled freely. The first token of
    a sample counts as drawn with that share times its own probability (0.5 for the forced tag), so the choice itself
    is learned by importance weighting; `learner.importance_cap` must be 1 over the smaller share or more to pass it
    whole. bonus 0.05 and share 0.5 as in github.com/THU-KEG/AdaptThink.

    Left out: there the reference is the accuracy with thinking of the start model, measured once for each problem.
    Nothing here keeps such a table: the reference is the accuracy of the group's own samples that were left to think,
    hence of the present policy (of the whole group where none of them has a verdict). Groups in which all are wrong
    are dropped before the reward, as for every strategy. No wrong trace ranks above a right one, since bonus is
    below 1. Figures of the rollouts (tokens, accuracy) include the samples made to skip thinking.
    """

    bonus: float = 0.05
    share: float = 0.5

    name: ClassVar[str] = "adaptthink"
    needs_prefix: ClassVar[bool] = False
    baseline: ClassVar[Baseline] = "none"

    def __post_init__(self) -> None:
        check_number("bonus", self.bonus, "a number of at least 0 and below 1", lambda value: 0 <= value < 1)
        check_number("share", self.share, "a number above 0 and below 1", lambda value: 0 < value < 1)

    def steer(self, problem_key: str, group_size: int, seed: int, max_length: int) -> list[Steering]:
        """The last samples of a group skip thinking: `share` of them, rounded, and at least one of either kind."""
        skipping = min(max(round(self.share * group_size), 1), group_size - 1)
        thinking = group_size - skipping
        free = Steering(share=thinking / group_size)
        return [free] * thinking + [Steering(no_think=True, share=skipping / group_size)] * skipping

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Advantages [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        thinking = [o.correct for o in outcomes if not o.no_think] or [o.correct for o in outcomes]
        reference = statistics.fmean(thinking)
        return over_width([o.correct - reference + self.bonus * o.no_think for o in outcomes], width)
