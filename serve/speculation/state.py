"""What a policy sees before it chooses a draft length, and what a verified step says about acceptance."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config import UserError, nearest

PHASES = ("reasoning", "answer")


@dataclass(frozen=True)
class State:
    """One engine step: `batch` sequences that decode, the `phase` most of them are in, and the bounds on the draft.

    `acceptance` is the share of examined draft tokens that were lately accepted (None: nothing was examined yet);
    `cap` is the longest draft that any request of the batch allows (None: no request has a cap).
    """

    batch: int
    phase: str = "answer"
    acceptance: float | None = None
    cap: int | None = None
    k_max: int = 4

    def __post_init__(self) -> None:
        if self.batch < 1 or self.k_max < 0 or (self.cap is not None and self.cap < 0):
            raise UserError(f"a state needs batch >= 1, k_max >= 0 and cap >= 0, not {self}")
        if self.phase not in PHASES:
            raise UserError(f"unknown phase {self.phase!r}{nearest(self.phase, PHASES)}")

    @property
    def limit(self) -> int:
        """The longest draft allowed in this step."""
        return self.k_max if self.cap is None else min(self.k_max, self.cap)

    @property
    def context(self) -> str:
        """Phase and batch bucket, as `reasoning:8`: what tables and bandits keep apart."""
        return f"{self.phase}:{bucket(self.batch)}"


def bucket(batch: int) -> int:
    """The largest power of two that is not above `batch`: 1, 2, 4, 8, ..."""
    return 1 << (batch.bit_length() - 1)


def asked_for(k: int, caps: Sequence[int | None]) -> tuple[int, ...]:
    """Draft tokens asked for each request when the step's length is `k` and a request's cap is an int or None."""
    return tuple(k if cap is None else min(k, cap) for cap in caps)


def longest_cap(caps: Sequence[int | None]) -> int | None:
    """`State.cap` of a batch whose requests have these caps: None when any request has none."""
    return None if not caps or None in caps else max(cap for cap in caps if cap is not None)


def examined(asked: int, emitted: int) -> tuple[int, int]:
    """(accepted, examined) draft tokens of one request that emitted `emitted` tokens of `asked` + 1 possible.

    Verification stops at the first rejected token, so later ones say nothing. A drafter that proposed fewer tokens
    than asked counts as rejected there: that is what asking for so many is worth.
    """
    accepted = emitted - 1
    return accepted, min(accepted + 1, asked)


class RecentAcceptance:
    """`State.acceptance`: accepted over examined draft tokens, old steps fading with `half_life` (in steps)."""

    def __init__(self, half_life: float = 16.0) -> None:
        self.keep = 0.5 ** (1.0 / half_life)
        self.accepted = self.tries = 0.0

    def update(self, asked: Sequence[int], emitted: Sequence[int]) -> None:
        pairs = [examined(a, e) for a, e in zip(asked, emitted, strict=True) if a]
        if pairs:
            self.accepted = self.keep * self.accepted + sum(a for a, _ in pairs)
            self.tries = self.keep * self.tries + sum(t for _, t in pairs)

    @property
    def value(self) -> float | None:
        return self.accepted / self.tries if self.tries else None
