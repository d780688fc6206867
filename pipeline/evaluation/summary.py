"""What a set of scored traces amounts to."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pipeline.evaluation.scoring import ScoredTrace
from pipeline.traces import Stop


@dataclass(frozen=True)
class Summary:
    """Figures over `n` scored traces.

    `accuracy`: right over right and wrong (UNKNOWN left out, see `unknown_rate`). `tokens_mean`: response tokens.
    `nrp_share`: necessary over all thinking tokens of right traces with a detected prefix (paper section 6, PNRP);
    `detector_misses`: right traces without one, as a share of right traces. `tokens_per_correct`: all tokens spent
    over right traces. Shares without a denominator are None. `accuracy_interval`, `tokens_interval`: 95 % bootstrap.
    """

    n: int
    accuracy: float | None
    tokens_mean: float | None
    think_tokens_mean: float | None
    nrp_share: float | None
    tokens_per_correct: float | None
    truncated_rate: float | None
    unknown_rate: float | None
    detector_misses: float | None
    accuracy_interval: tuple[float, float] | None
    tokens_interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None where there is nothing to divide by."""
    return part / whole if whole else None


def bootstrap(values: Sequence[float], rounds: int = 1000, seed: int = 0) -> tuple[float, float] | None:
    """95 % percentile interval of the mean; None without values."""
    if not values:
        return None
    rng = random.Random(seed)
    means = sorted(sum(rng.choices(values, k=len(values))) / len(values) for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]


def nrp_share(traces: Sequence[ScoredTrace]) -> float | None:
    """Necessary over all thinking tokens of right traces whose prefix was found."""
    found = [t for t in traces if t.correct and t.prefix_length is not None]
    return ratio(sum(t.prefix_length or 0 for t in found), sum(t.think_length for t in found))


def mean(traces: Sequence[ScoredTrace], value: Callable[[ScoredTrace], float]) -> float | None:
    """The mean of one figure over traces."""
    return ratio(sum(value(t) for t in traces), len(traces))


def summarise(traces: Sequence[ScoredTrace], intervals: bool = True) -> Summary:
    """The summary of any number of scored traces, none included; bootstrap intervals take most of its time."""
    known = [t for t in traces if t.correct is not None]
    right = [t for t in known if t.correct]
    return Summary(
        n=len(traces),
        accuracy=ratio(len(right), len(known)),
        tokens_mean=mean(traces, lambda t: t.length),
        think_tokens_mean=mean(traces, lambda t: t.think_length),
        nrp_share=nrp_share(traces),
        tokens_per_correct=ratio(sum(t.length for t in traces), len(right)),
        truncated_rate=mean(traces, lambda t: t.trace.stop is Stop.LENGTH),
        unknown_rate=mean(traces, lambda t: t.correct is None),
        detector_misses=mean(right, lambda t: t.prefix_length is None),
        accuracy_interval=bootstrap([float(bool(t.correct)) for t in known]) if intervals else None,
        tokens_interval=bootstrap([float(t.length) for t in traces]) if intervals else None,
    )
