"""What every reward strategy offers, and the checks they share."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.rewards.outcome import Outcome

FloatArray = NDArray[np.float64]


class RewardStrategy(Protocol):
    """Turns the outcomes of one group into a reward per token.

    A strategy is a frozen dataclass whose fields are its options. It sees nothing but `Outcome`, so it can never
    depend on text, on order or on other groups.
    """

    name: ClassVar[str]
    needs_prefix: ClassVar[bool]  # False: the judge need not be asked

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W] of one group, padding positions included.

        `width` W is the padded width in tokens; `max_length` is the longest response the run allows, in tokens
        (not the longest of the group, so that a reward does not change with its neighbours).
        """
        ...


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
