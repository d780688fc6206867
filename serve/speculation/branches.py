"""The cache of speculative speculative decoding: drafts prepared for verification outcomes that are not known yet."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.config import UserError

Outcome = tuple[int, int]  # draft tokens accepted, and the token the target added after them


@dataclass(frozen=True)
class _Prepared:
    epoch: int
    drafts: Mapping[Outcome, tuple[int, ...]]


class BranchCache:
    """Drafts by request and outcome, at most `capacity` requests (the least recently prepared leaves first).

    `epoch` is the number of tokens the request had when its pending draft was made; a branch is only returned for the
    epoch it was prepared for, so a preempted or restarted request never meets an old draft. A look-up uses up the
    request's branches: only one outcome happens.
    """

    def __init__(self, capacity: int = 256) -> None:
        if capacity < 1:
            raise UserError(f"a branch cache needs a capacity of at least 1 request, not {capacity}")
        self.capacity = capacity
        self._requests: OrderedDict[str, _Prepared] = OrderedDict()
        self.counters = dict.fromkeys(("hits", "misses", "stale", "evicted", "branches"), 0)

    def prepare(self, request: str, epoch: int, drafts: Mapping[Outcome, Sequence[int]]) -> None:
        """Put the drafts for a request's likely outcomes in place of what it had."""
        self._requests.pop(request, None)
        self._requests[request] = _Prepared(epoch, {key: tuple(draft) for key, draft in drafts.items()})
        self.counters["branches"] += len(drafts)
        if len(self._requests) > self.capacity:
            self._requests.popitem(last=False)
            self.counters["evicted"] += 1

    def take(self, request: str, epoch: int, outcome: Outcome) -> tuple[int, ...] | None:
        """The draft prepared for what happened, or None: then the backup drafter has to work."""
        prepared = self._requests.pop(request, None)
        if prepared is not None and prepared.epoch != epoch:
            self.counters["stale"] += 1
            prepared = None
        draft = None if prepared is None else prepared.drafts.get(outcome)
        self.counters["misses" if draft is None else "hits"] += 1
        return draft

    def forget(self, request: str) -> None:
        """A request has ended, or was aborted or preempted."""
        self._requests.pop(request, None)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def hit_rate(self) -> float | None:
        """Hits over look-ups, None before the first."""
        asked = self.counters["hits"] + self.counters["misses"]
        return self.counters["hits"] / asked if asked else None
