"""DECS (arXiv 2509.25827): decoupled rewards, split at the end of the necessary reasoning prefix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from pipeline.config import UserError, nearest
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import FloatArray, check_outcomes

Form = Literal["code", "paper"]


@dataclass(frozen=True)
class Decs:
    """Paper eq. 9. Tokens up to the prefix end, the end-of-think tag, the answer and padding get `r_plus`;
    thinking tokens after the prefix get less, the longer the response the less. Wrong responses get 0 everywhere.

    `form` chooses the redundant reward for a response of L tokens, with gap = r_plus - r_zero:
    "code" (as released by the authors): r_plus - gap * L / max_length, so `r_zero` is the least a correct token gets;
    "paper" (as printed): r_zero - gap * L / max_length.
    """

    r_plus: float = 1.1
    r_zero: float = 1.0
    form: Form = "code"

    name: ClassVar[str] = "decs"
    needs_prefix: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for option in ("r_plus", "r_zero"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise UserError(f"reward.{option} is {value!r}; give a finite number")
        if not 0 < self.r_zero < self.r_plus:
            raise UserError(
                f"reward.r_zero ({self.r_zero}) must lie between 0 and reward.r_plus ({self.r_plus}), both excluded, "
                "or redundant tokens would cost nothing"
            )
        if self.form not in get_args(Form):
            raise UserError(f"reward.form '{self.form}' is unknown{nearest(str(self.form), get_args(Form))}")

    def redundant_reward(self, length: int, max_length: int) -> float:
        """Reward of a redundant thinking token in a correct response of `length` tokens."""
        top = self.r_plus if self.form == "code" else self.r_zero
        return top - (self.r_plus - self.r_zero) * length / max_length

    def token_rewards(self, outcomes: Sequence[Outcome], width: int, max_length: int) -> FloatArray:
        """Rewards [G, W]. A correct response without a detected prefix is all `r_plus`: nothing is known redundant."""
        check_outcomes(outcomes, width, max_length)
        rewards_GW = np.zeros((len(outcomes), width), dtype=np.float64)
        for row_W, outcome in zip(rewards_GW, outcomes, strict=True):
            if not outcome.correct:
                continue
            row_W[:] = self.r_plus
            if outcome.prefix_length is not None:
                redundant = slice(outcome.prefix_length, outcome.think_length)  # empty when the prefix is all thinking
                row_W[redundant] = self.redundant_reward(outcome.length, max_length)
        return rewards_GW
