"""What kind of group the verdicts make it."""

from collections.abc import Sequence
from enum import StrEnum


class GroupKind(StrEnum):
    """By the correctness of a group's traces under the current policy."""

    ALL_WRONG = "all_wrong"
    MIXED = "mixed"
    EASY = "easy"  # all right
    UNKNOWN = "unknown"  # fewer than two verdicts are known


def classify(correct: Sequence[bool | None]) -> GroupKind:
    """Kind of a group from its verdicts: True right, False wrong, None unknown (left out of the decision).

    Anything but a boolean or None is a TypeError: a verdict object is true as a condition even when it says wrong.
    """
    known = [_as_bool(verdict) for verdict in correct if verdict is not None]
    if len(known) < 2:
        return GroupKind.UNKNOWN
    if all(known):
        return GroupKind.EASY
    return GroupKind.MIXED if any(known) else GroupKind.ALL_WRONG


def _as_bool(verdict: object) -> bool:
    if isinstance(verdict, bool) or type(verdict).__name__ in ("bool_", "bool"):  # numpy's boolean is not bool's child
        return bool(verdict)
    raise TypeError(f"verdicts must be True, False or None, got {verdict!r}")
