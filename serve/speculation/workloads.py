"""Workloads for the simulator: how acceptance, batch size and phase go over the text."""

from dataclasses import dataclass, field
from functools import lru_cache

from pipeline.config import UserError
from serve.speculation.costs import CostModel

K_MAX = 6
MEMORY_BOUND = CostModel(per_token=0.01, free_tokens=16, draft_fixed=0.08)
COMPUTE_BOUND = CostModel(fixed=0.5, per_token=0.05, draft_fixed=0.05, draft_per_sequence=0.005)
SELF_DRAFT = CostModel(draft_fixed=1.0)


@dataclass(frozen=True)
class Segment:
    """`tokens` tokens of every sequence, with acceptance by draft position going from `start` to `end` (None: it
    stays); a shorter tuple is continued with its last value. `caps` are per-request caps, one a sequence (empty: none).

    Segments are counted in tokens, not in steps: a faster policy is through the same text sooner.
    """

    tokens: int
    start: tuple[float, ...]
    end: tuple[float, ...] | None = None
    batch: int = 1
    phase: str = "answer"
    caps: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if self.tokens < 1 or not self.start or (self.caps and len(self.caps) != self.batch):
            raise UserError("a segment needs tokens >= 1, an acceptance, and either no caps or one a sequence")
        if not all(0 <= rate <= 1 for rate in (*self.start, *(self.end or ()))):
            raise UserError("acceptance rates lie in 0 ... 1")

    def rates(self, token: float, k_max: int) -> list[float]:
        """Acceptance [k_max] by draft position when `token` tokens of this segment are written."""
        start = _padded(self.start, k_max)
        if self.end is None:
            return start
        part = token / self.tokens
        return [a + (b - a) * part for a, b in zip(start, _padded(self.end, k_max), strict=True)]


@lru_cache(maxsize=256)
def _padded(rates: tuple[float, ...], length: int) -> list[float]:
    return [rates[min(i, len(rates) - 1)] for i in range(length)]


@dataclass(frozen=True)
class Workload:
    """Segments one after the other, again and again, under one cost model."""

    name: str
    segments: tuple[Segment, ...]
    costs: CostModel = field(default=MEMORY_BOUND)
    k_max: int = K_MAX

    def at(self, token: float) -> tuple[Segment, float]:
        """The segment that holds a token of the text, and the token within it."""
        token %= sum(segment.tokens for segment in self.segments)
        for segment in self.segments:
            if token < segment.tokens:
                return segment, token
            token -= segment.tokens
        return self.segments[0], 0.0  # a rounding error above the sum

    @property
    def widest(self) -> int:
        return max(segment.batch for segment in self.segments)


def _steady(name: str, *rates: float, batch: int = 1, costs: CostModel = MEMORY_BOUND) -> Workload:
    return Workload(name, (Segment(1000, rates, batch=batch),), costs)


STATIONARY = (
    _steady("predictable", 0.92),
    _steady("middling", 0.65),
    _steady("fading", 0.9, 0.7, 0.4, 0.2),
    _steady("crowded", 0.7, batch=24, costs=COMPUTE_BOUND),
    _steady("small batch", 0.8, batch=4),
)
CANNOT_PAY = (
    _steady("hopeless drafts", 0.04),
    _steady("draft as dear as the target", 0.7, costs=SELF_DRAFT),
    _steady("crowded and unpredictable", 0.2, batch=24, costs=COMPUTE_BOUND),
)
CHANGING = (
    Workload("switching", (Segment(400, (0.93,)), Segment(150, (0.05,)))),
    Workload("by phase", (Segment(200, (0.95,), phase="reasoning"), Segment(60, (0.08,), phase="answer"))),
    Workload("drifting", (Segment(600, (0.97,), (0.03,)), Segment(600, (0.03,), (0.97,)))),
    Workload("tidal", (Segment(120, (0.8,)), Segment(80, (0.8,), batch=24)), COMPUTE_BOUND),
)
