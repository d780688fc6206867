"""What a run's report shows, as plain data. Nothing here computes: the loop and the demo fill it in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.tracking.trace_view import TraceView

History = Mapping[str, Mapping[int, float]]
Pair = tuple[TraceView, TraceView]  # replies to one problem, before and after
NOT_MEASURED = "not measured"


class FigureName(StrEnum):
    """A figure by which two versions are compared."""

    ACCURACY = "accuracy"
    TOKENS = "tokens"
    TOKENS_PER_CORRECT = "tokens_per_correct"
    NRP_SHARE = "nrp_share"


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; None is what was not measured."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> tuple[float, ...]:
        """The value, and the ends of its interval where it has one."""
        return tuple(number for number in (self.value, self.low, self.high) if number is not None)

    @property
    def sign(self) -> int | None:
        """-1 or 1 where the interval leaves out 0, 0 where it holds it, None without an interval."""
        if self.low is None or self.high is None:
            return None
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class Figure:
    """One figure before and after. `change` is relative for tokens and a difference for shares."""

    before: Estimate = Estimate()
    after: Estimate = Estimate()
    change: Estimate = Estimate()


@dataclass(frozen=True)
class BeforeAfter:
    """Two versions of one policy compared. `where` says in words what was measured: it stands on the page."""

    where: str
    versions: tuple[str, str]
    figures: Mapping[FigureName, Figure]
    aes: Estimate = Estimate()
    by_source: Mapping[str, Mapping[FigureName, Figure]] = field(default_factory=dict)

    def figure(self, name: FigureName) -> Figure:
        """One figure; empty estimates where it was not measured."""
        return self.figures.get(name, Figure())


@dataclass(frozen=True)
class RunReport:
    """One run, whole. `history` maps full metric names to step -> value; `published` lists the versions handed on to
    storage and the endpoint; `traces` are what the browser shows and `traces_from` says where they come from, as
    `pairs_from` does for the pairs (before, after) of one problem each."""

    name: str
    facts: Sequence[tuple[str, str]]
    change: BeforeAfter
    history: History
    published: Sequence[int] = ()
    traces: Sequence[TraceView] = ()
    traces_from: str = ""
    pairs: Sequence[Pair] = ()
    pairs_from: str = ""
