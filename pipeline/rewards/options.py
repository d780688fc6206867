"""Checks of a strategy's options, so that every refusal reads alike."""

import math
from collections.abc import Callable

from pipeline.config import UserError


def check_number(option: str, value: object, allowed: str, fits: Callable[[float], bool]) -> None:
    """UserError unless `value` is a finite number that `fits`; `allowed` says which ones do."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not fits(float(value)):  # type: ignore[arg-type]
        raise UserError(f"reward.options.{option} is {value!r}; give {allowed}")


def check_tokens(option: str, value: object) -> None:
    """UserError unless `value` is None (the strategy's own choice) or a whole number of tokens above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UserError(f"reward.options.{option} is {value!r}; give a whole number of tokens, at least 1")


def tokens_within(option: str, value: int | None, otherwise: float, max_length: int) -> int:
    """`value`, or the share `otherwise` of `max_length` where it is None; at least 1.

    UserError where it exceeds `max_length`: no response would be long enough for it to act.
    """
    if value is not None and value > max_length:
        raise UserError(
            f"reward.options.{option} is {value} tokens, but responses end at rollout.max_new_tokens={max_length}; "
            "lower the first or raise the second"
        )
    return value if value is not None else max(1, round(otherwise * max_length))
