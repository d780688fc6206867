"""What every reward strategy offers, and the checks they share."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.rewards.outcome import Outcome

FloatArray = NDArray[np.float64]
Baseline = Literal["group_std", "group_mean", "leave_one_out", "none"]


class RewardStrategy(Protocol):
    """Turns the outcomes of one group into a reward per token.

    A strategy is a frozen dataclass whose fields are its options. It sees nothing but `Outcome`, so it can never
    depend on text, on order or on other groups.

    It may also have: `baseline`, a class variable, where its advantage is not GRPO's (`position_advantages`);
    `kept_spans(outcome)` and `steer(problem_key, group_size, seed, max_length)`, see `hooks.py`.
    """

    name: ClassVar[str]
    needs_prefix: ClassVar[bool]  # False: the judge need not be asked

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W] of one group, padding positions included.

        `width` W is the padded width in tokens; `max_length` is the longest response the run allows, in tokens
        (not the longest of the group, so that a reward does not change with its neighbours).
        """
        ...


def baseline_of(strategy: RewardStrategy) -> Baseline:
    """What the strategy's rewards are compared with."""
    return getattr(strategy, "baseline", "group_std")


def over_width(sequence_rewards: ArrayLike, width: int) -> FloatArray:
    """Rewards [G, W] in which every token, padding included, has its sequence's reward [G]."""
    return np.repeat(np.asarray(sequence_rewards, dtype=np.float64)[:, None], width, axis=1)


def check_outcomes(outcomes: Sequence[Outcome], width: int, max_length: int) -> None:
    """Raise ValueError where lengths contradict each other: such a reward would look right and be wrong."""
    longest = min(width, max_length)
    for row, outcome in enumerate(outcomes):
        if not 0 <= outcome.length <= longest:
            raise ValueError(f"trace {row}: {outcome.length} tokens, outside 0..{longest} (width or max_length)")
        if not 0 <= outcome.think_length <= outcome.length:
            raise ValueError(f"trace {row}: think_length {outcome.think_length} outside its {outcome.length} tokens")
        if outcome.prefix_length is not None and not 0 <= outcome.prefix_length <= outcome.length:
            raise ValueError(f"trace {row}: prefix_length {outcome.prefix_length} outside its {outcome.length} tokens")
