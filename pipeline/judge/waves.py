"""Requests to find prefixes, and the bookkeeping of one round of them (pure)."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.judge.base import JudgeItem
from pipeline.traces import prefix_length

CACHE_SIZE = 100_000


@dataclass(frozen=True)
class PrefixRequest:
    """Find the necessary prefix of one right trace: token spans of its segments, and their texts."""

    trace_id: str
    problem: str
    gold: str
    segments: Sequence[tuple[int, int]]
    texts: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.segments) != len(self.texts):
            raise ValueError(f"trace {self.trace_id}: {len(self.segments)} segments but {len(self.texts)} texts")


@dataclass(frozen=True)
class PrefixResult:
    """`prefix_length` in tokens and `yes_index`, None where no segment is right; `judged` segments of the total."""

    trace_id: str
    prefix_length: int | None
    judged: int
    yes_index: int | None
    segments_total: int


@dataclass
class Search:
    """One trace on its way: verdicts so far."""

    request: PrefixRequest
    verdicts: list[bool] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether a next segment is to be judged: no yes yet, and segments left."""
        return True not in self.verdicts and len(self.verdicts) < len(self.request.texts)

    def next_item(self) -> JudgeItem:
        """The first segment not judged yet."""
        return JudgeItem(self.request.problem, self.request.gold, self.request.texts[len(self.verdicts)])

    def result(self) -> PrefixResult:
        """What was found."""
        yes = self.verdicts.index(True) if True in self.verdicts else None
        prefix = prefix_length(self.request.segments, self.verdicts)
        return PrefixResult(self.request.trace_id, prefix, len(self.verdicts), yes, len(self.request.segments))


class VerdictCache:
    """Verdicts of identical (problem, gold, segment), the least recently used forgotten first."""

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size, self._known = size, OrderedDict[JudgeItem, bool]()

    def get(self, item: JudgeItem) -> bool | None:
        """The verdict, None if not known."""
        if item in self._known:
            self._known.move_to_end(item)
        return self._known.get(item)

    def put(self, item: JudgeItem, verdict: bool) -> None:
        """Remember a verdict the judge gave (never one that stands for a failure)."""
        self._known[item] = verdict
        if len(self._known) > self._size:
            self._known.popitem(last=False)
