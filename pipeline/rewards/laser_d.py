"""LASER-D, the difficulty-aware form of LASER (arXiv 2505.15612)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.rewards.laser import step_rewards
from pipeline.rewards.options import check_number, check_tokens, tokens_within
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes, over_width


@dataclass(frozen=True)
class LaserD:
    """LASER with a target by how much of the group is right: `easy` from 2/3, `medium` from 1/3, else `hard`
    (github.com/hkust-nlp/Laser).

    Left out: there the three targets are chosen anew during training from a monitoring set. Here they are fixed, by
    default a quarter, a half and all of the longest response. No wrong trace ranks above a right one.
    """

    easy: int | None = None
    medium: int | None = None
    hard: int | None = None
    bonus: float = 0.5
    wrong: float = -0.5

    name: ClassVar[str] = "laser_d"
    needs_prefix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for option in ("easy", "medium", "hard"):
            check_tokens(option, getattr(self, option))
        check_number("bonus", self.bonus, "a number above 0", lambda value: value > 0)
        check_number("wrong", self.wrong, "a number below 1, what a right answer gets", lambda value: value < 1)

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W], the same for all tokens of a trace."""
        check_outcomes(outcomes, width, max_length)
        thirds, group = 3 * sum(o.correct for o in outcomes), len(outcomes)
        targets = {
            level: tokens_within(level, getattr(self, level), share, max_length)
            for level, share in (("easy", 0.25), ("medium", 0.5), ("hard", 1.0))
        }
        level = "easy" if thirds >= 2 * group else "medium" if thirds >= group else "hard"
        return over_width(step_rewards(outcomes, targets[level], self.bonus, self.wrong), width)
