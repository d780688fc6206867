"""The cases of the comparison with vLLM's own server, their figures, and the table. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any

from jobs._bench_replies import Reply
from jobs._bench_stats import paired, percentile

OURS, THEIRS = "endpoint", "vllm"
STREAM_TOKENS = 128
SHORT_TOKENS = 32
BETTER_HIGH = ("requests_per_s",)
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """`clients` at a time, replies of `tokens` tokens, streamed or whole."""

    clients: int
    tokens: int
    stream: bool = False

    @property
    def requests(self) -> int:
        """How many make one measurement: some seconds of work, at least four (thirty short ones) for each client, so
        that the burst of all at its beginning is a small part, and so is a wave of clients that fell into step."""
        one, least = (64, 30) if self.tokens <= SHORT_TOKENS else (16, 4)
        return self.clients * max(least, one // ceil(sqrt(self.clients)))

    @property
    def name(self) -> str:
        return f"{self.clients} clients, {self.tokens} tokens{', streamed' if self.stream else ''}"


@dataclass
class Outcome:
    """The figures of one case by side, one entry a round."""

    case: Case
    rounds: dict[str, list[Figures]] = field(default_factory=lambda: {OURS: [], THEIRS: []})

    def ratios(self) -> dict[str, dict[str, float | None]]:
        """endpoint / vLLM of each figure: the median over the rounds, with its interval."""
        every = [one for side in (OURS, THEIRS) for one in self.rounds[side]]
        names = [name for name in (every[0] if every else {}) if all(name in one for one in every)]
        return {name: paired(*([one[name] for one in self.rounds[side]] for side in (OURS, THEIRS))) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with every round."""
        shape = {"clients": self.case.clients, "tokens": self.case.tokens, "stream": self.case.stream}
        return {**shape, "requests": self.case.requests, "ratios": self.ratios(), "rounds": self.rounds}


def cases(clients: Sequence[int], tokens: Sequence[int]) -> list[Case]:
    """Whole replies of each length, then streamed ones of 128 tokens (or the longest length)."""
    whole = [Case(count, length) for count in clients for length in tokens]
    streamed = STREAM_TOKENS if STREAM_TOKENS in tokens else max(tokens)
    return whole + [Case(count, streamed, True) for count in clients]


def order(number: int) -> tuple[str, str]:
    """Which side is measured first in a round: they take turns."""
    return (THEIRS, OURS) if number % 2 == 0 else (OURS, THEIRS)


def figures(replies: Sequence[Reply], wall: float) -> Figures:
    """Of one measurement of `wall` seconds: requests a second and latencies; of streams also the time to the first
    token, the mean time between tokens of a reply, and the gaps between chunks (a server may send several at once)."""
    seconds = [reply.seconds for reply in replies]
    found = {"requests_per_s": len(replies) / wall, **_both("seconds", seconds)}
    streams = [reply for reply in replies if reply.shape.stream and len(reply.arrivals) > 1]
    if streams:
        between = [(r.arrivals[-1] - r.arrivals[0]) / (r.tokens - 1) for r in streams]
        gaps = [b - a for r in streams for a, b in zip(r.arrivals, r.arrivals[1:], strict=False)]
        found |= _both("first_token", [r.arrivals[0] - r.began for r in streams])
        found |= {"between_tokens_p50": percentile(between, 0.5), "gap_p99": percentile(gaps, 0.99)}
    return found


def _both(name: str, values: Sequence[float]) -> Figures:
    return {f"{name}_p50": percentile(values, 0.5), f"{name}_p99": percentile(values, 0.99)}


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: medians of each side over the rounds, and the paired ratio with its 95 % interval."""
    rows = ["| case | figure | vLLM's server | endpoint | endpoint / vLLM |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        ratios = outcome.ratios()
        for name in _shown(outcome.case):
            if name in ratios:
                sides = [_median(outcome, side, name) for side in (THEIRS, OURS)]
                rows.append(f"| {outcome.case.name} | {LABELS[name]} | {' | '.join(sides)} | {_ratio(ratios[name])} |")
    return "\n".join(rows) + "\n"


LABELS = {
    "requests_per_s": "requests/s",
    "seconds_p50": "latency p50, ms",
    "seconds_p99": "latency p99, ms",
    "first_token_p50": "first token p50, ms",
    "between_tokens_p50": "between tokens p50, ms",
    "gap_p99": "gap between chunks p99, ms",
}


def _shown(case: Case) -> Sequence[str]:
    if case.stream:
        return ("first_token_p50", "between_tokens_p50", "gap_p99")
    return ("seconds_p50", "seconds_p99") if case.clients == 1 else ("requests_per_s", "seconds_p99")


def _median(outcome: Outcome, side: str, name: str) -> str:
    value = percentile([one[name] for one in outcome.rounds[side]], 0.5)
    return f"{value:.1f}" if name in BETTER_HIGH else f"{1000 * value:.1f}"


def _ratio(found: Mapping[str, float | None]) -> str:
    if found["low"] is None:
        return f"{found['ratio']:.2f}"
    return f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
