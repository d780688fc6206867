"""LC-R1, "Optimizing Length Compression in Large Reasoning Models" (arXiv 2506.14755)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.rewards.advantage import position_advantages
from pipeline.rewards.hooks import Span
from pipeline.rewards.options import check_number
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import Baseline, FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class LcR1:
    """Redundant thinking of right responses is cut out of the sequence, and the rest is trained on, as in
    github.com/zxiangx/LC-R1. What remains of a response earns

        closed + right + length_weight * (1 - L / longest right L), less the group's mean (no division by the spread),

    with L the tokens that remain, `closed` 1 where the thinking ends; the length term is 0 where nothing is right. At
    the end-of-think tag of a right response `tag_weight` times 1 - L_valid / L_think comes on top, or -1 where no
    segment of the thinking held the answer. That bonus belongs to one trace and stays out of the group's mean, so the
    mean is taken off here and the rewards are advantages already (`baseline` none).

    Differs from the original: our judge's prefix stands for its extractor model, and the end-of-sequence token counts
    in L. Both weights are options there whose values are unclear to us; 1 is assumed. By the sequence's reward no wrong
    trace ranks above a right one while length_weight is at most 1; at the tag of a right one that -1 can undo it.
    """

    length_weight: float = 1.0
    tag_weight: float = 1.0

    name: ClassVar[str] = "lc_r1"
    needs_prefix: ClassVar[bool] = True
    baseline: ClassVar[Baseline] = "none"

    def __post_init__(self) -> None:
        for option in ("length_weight", "tag_weight"):
            check_number(option, getattr(self, option), "a number of at least 0", lambda value: value >= 0)

    def kept_spans(self, outcome: Outcome) -> list[Span]:
        """All but the thinking after the necessary prefix of a right response."""
        valid = _valid_thinking(outcome)
        if valid is None:
            return [(0, outcome.length)]
        return [(0, valid), (outcome.think_length, outcome.length)]

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Advantages [G, W] (see the class), in the positions of the whole responses; cut ones are not trained on."""
        check_outcomes(outcomes, width, max_length)
        kept_G = np.array([_kept_length(o) for o in outcomes], dtype=np.float64)
        right_G = np.array([o.correct for o in outcomes], dtype=bool)
        closed_G = np.array([o.think_length < o.length for o in outcomes], dtype=bool)
        longest = kept_G[right_G].max() if right_G.any() else 0.0
        short_G = 1 - kept_G / longest if longest > 0 else np.zeros(len(outcomes))
        sequence_G = 1.0 * closed_G + right_G + self.length_weight * short_G
        advantages_GW = over_width(position_advantages(sequence_G[:, None], "group_mean")[:, 0], width)
        for row_W, outcome in zip(advantages_GW, outcomes, strict=True):
            if outcome.correct and outcome.think_length < outcome.length:
                row_W[outcome.think_length] += self.tag_weight * _compression(outcome)
        return advantages_GW


def _valid_thinking(outcome: Outcome) -> int | None:
    """Thinking tokens up to the first right answer; None where none is known."""
    if not outcome.correct or not outcome.prefix_length:
        return None
    return min(outcome.prefix_length, outcome.think_length)


def _kept_length(outcome: Outcome) -> int:
    valid = _valid_thinking(outcome)
    return outcome.length if valid is None else valid + outcome.length - outcome.think_length


def _compression(outcome: Outcome) -> float:
    """The share of the thinking that is redundant; -1 where it never reached the answer."""
    valid = _valid_thinking(outcome)
    return 1 - valid / outcome.think_length if valid else -1.0
