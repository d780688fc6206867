"""Dynamic sampling: collect groups over rounds until a batch is full, with a share kappa of easy ones.

Groups in which all traces are wrong carry no signal and are dropped. Mixed groups are kept. Easy groups join in
the proportion kappa / (1 - kappa) to the mixed ones. Unlike the authors' code, which asks each round for a new
quota and forgets what it could not get, the quota here is counted over all rounds of a batch and easy groups wait
in a pool: neither a shortfall nor a fraction is lost, and the realised share is kappa whenever enough easy groups
were sampled.

A batch of B groups wants round(kappa * B) easy groups (half up, at most B - 1) and mixed ones for the rest. If
fewer easy groups turned up, mixed ones take their places; the other way round never, as too large an easy share is
the direction in which suppression runs away. Without a kappa (None) mixed and easy groups fill the batch in the order
sampled.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pipeline.config import UserError
from pipeline.curriculum.groups import GroupKind

T = TypeVar("T")


class DropReason(StrEnum):
    """Why a sampled group is not in the batch."""

    ALL_WRONG = "all_wrong"
    UNKNOWN = "unknown"
    EASY_SURPLUS = "easy_surplus"  # more easy groups than kappa asks for
    OVERFLOW = "overflow"  # groups beyond a full batch


class BatchNotFilled(UserError):
    """The sampling limit was reached before the batch was full."""


@dataclass(frozen=True)
class Filled(Generic[T]):
    """A batch: `groups` in the order they came, and every other sampled group with the reason it was dropped."""

    groups: tuple[T, ...]
    mixed: int
    easy: int
    wanted: int  # groups of a full batch
    easy_wanted: int | None  # of a full batch; None: kappa asks for nothing
    rounds: int
    dropped: tuple[tuple[T, DropReason], ...]

    @property
    def partial(self) -> bool:
        """Fewer groups than wanted; denominators must come from the tokens present, never from `wanted`."""
        return len(self.groups) < self.wanted

    @property
    def realised_share(self) -> float:
        """easy / (easy + mixed)."""
        return self.easy / len(self.groups)

    @property
    def drops(self) -> dict[DropReason, int]:
        """Dropped groups by reason; every reason is present."""
        counts = Counter(reason for _, reason in self.dropped)
        return {reason: counts[reason] for reason in DropReason}


def easy_quota(kappa: float, kept: int, available: int) -> int:
    """Easy groups that may join `kept` mixed ones: floor(kappa / (1 - kappa) * kept), at most `available`.

    0 for kappa <= 0; all that are available for kappa >= 1.
    """
    if kappa <= 0:
        return 0
    if kappa >= 1:
        return available
    return min(math.floor(kappa * kept / (1 - kappa) + 1e-9), available)  # 1e-9: 0.2 * 40 / 0.8 is 10, not 9.99...


def easy_target(kappa: float, batch: int) -> int:
    """Easy groups of a full batch: round(kappa * batch), half up, between 0 and batch - 1."""
    return max(0, min(math.floor(kappa * batch + 0.5), batch - 1))


class BatchFiller(Generic[T]):
    """Fills one batch. Call `add` once a round until `done`, then `result`.

    `max_rounds` bounds the sampling; `close` ends it early, for example after one pass over the data. A limit
    reached too early is `BatchNotFilled` in `result`, or a batch of at least the share `min_share` of the wanted
    groups. Order decides what is kept (first come), so the result is a function of what was added.
    """

    def __init__(self, batch: int, kappa: float | None, max_rounds: int, min_share: float = 1.0) -> None:
        for name, value in (("batch", batch), ("max_rounds", max_rounds)):
            if value < 1:
                raise UserError(f"dynamic sampling needs {name} of at least 1, got {value}")
        if kappa is not None and not math.isfinite(kappa):
            raise ValueError(f"kappa is {kappa}")
        self.batch, self.kappa, self.max_rounds, self.min_share = batch, kappa, max_rounds, min_share
        self.rounds = 0
        self._closed = False
        self._seen: list[tuple[T, GroupKind]] = []

    def count(self, kind: GroupKind) -> int:
        """Groups of `kind` sampled so far."""
        return sum(1 for _, seen in self._seen if seen is kind)

    @property
    def _usable(self) -> int:
        """Groups sampled so far that a full batch has a place for."""
        most = self.batch if self.kappa is None else easy_target(self.kappa, self.batch)
        return self.count(GroupKind.MIXED) + min(most, self.count(GroupKind.EASY))

    @property
    def filled(self) -> bool:
        """A full batch can be made."""
        return self._usable >= self.batch

    @property
    def done(self) -> bool:
        """No further round is wanted: full, out of rounds, or closed."""
        return self.filled or self._closed or self.rounds >= self.max_rounds

    @property
    def missing(self) -> int:
        """Groups still wanted for a full batch; a hint for how many prompts to sample next."""
        return max(0, self.batch - self._usable)

    @property
    def easy_share(self) -> float:
        """Easy groups among all sampled ones with known verdicts (all-wrong ones count); 0 before any."""
        known = len(self._seen) - self.count(GroupKind.UNKNOWN)
        return self.count(GroupKind.EASY) / known if known else 0.0

    def add(self, groups: Iterable[tuple[T, GroupKind]]) -> None:
        """Take the groups of one round with their kinds. RuntimeError once `done`: that round was sampled in vain."""
        if self.done:
            raise RuntimeError("the batch is done; no further round can be added")
        self._seen.extend(groups)
        self.rounds += 1

    def close(self) -> None:
        """No more groups will come."""
        self._closed = True

    def result(self) -> Filled[T]:
        """The batch. BatchNotFilled with counts if the limit came first and fewer than `min_share` of the wanted
        groups (or none) can be kept; RuntimeError while rounds are left."""
        if not self.done:
            left = self.max_rounds - self.rounds
            raise RuntimeError(f"the batch lacks {self.missing} groups and {left} rounds are left")
        batch = self._choose()
        if not batch.groups or len(batch.groups) < self.min_share * self.batch:
            raise BatchNotFilled(self._explain(batch))
        return batch

    def _composition(self) -> tuple[int, int]:
        """(mixed, easy) of the batch: kappa of a full batch, or the quota of the mixed groups there are."""
        if self.kappa is None:
            first = [kind for _, kind in self._seen if kind in (GroupKind.MIXED, GroupKind.EASY)][: self.batch]
            return first.count(GroupKind.MIXED), first.count(GroupKind.EASY)
        mixed, easy = self.count(GroupKind.MIXED), self.count(GroupKind.EASY)
        target = easy_target(self.kappa, self.batch)
        easy = min(target, easy) if self.filled else min(target, easy_quota(self.kappa, mixed, easy))
        return min(mixed, self.batch - easy), easy

    def _choose(self) -> Filled[T]:
        mixed, easy = self._composition()
        room = {GroupKind.MIXED: mixed, GroupKind.EASY: easy}
        easy_reason = DropReason.OVERFLOW if self.kappa is None else DropReason.EASY_SURPLUS
        surplus = {GroupKind.MIXED: DropReason.OVERFLOW, GroupKind.EASY: easy_reason}
        groups: list[T] = []
        dropped: list[tuple[T, DropReason]] = []
        for group, kind in self._seen:
            if room.get(kind, 0) > 0:
                room[kind] -= 1
                groups.append(group)
            else:
                dropped.append((group, surplus.get(kind) or DropReason(kind.value)))
        target = None if self.kappa is None else easy_target(self.kappa, self.batch)
        return Filled(tuple(groups), mixed, easy, self.batch, target, self.rounds, tuple(dropped))

    def _explain(self, batch: Filled[T]) -> str:
        drops = ", ".join(f"{count} {reason.value}" for reason, count in batch.drops.items())
        why = "the groups to sample from ran out" if self._closed else "that is curriculum.max_rounds"
        return (
            f"only {len(batch.groups)} of {self.batch} groups ({batch.mixed} mixed, {batch.easy} easy) after "
            f"{self.rounds} rounds ({why}); dropped: {drops}; use problems of a fitting difficulty, raise "
            "curriculum.max_rounds, or lower curriculum.min_batch_share to train on smaller batches"
        )
