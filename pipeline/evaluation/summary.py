"""What a set of scored traces amounts to."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from pipeline.evaluation.estimators import interval as quantile_interval
from pipeline.evaluation.scoring import ScoredTrace
from pipeline.traces import Stop

Interval = tuple[float, float]


@dataclass(frozen=True)
class Summary:
    """Figures over `n` scored traces of `problems` problems. Shares without a denominator are None.

    Means are taken over the traces of a problem first, then over problems. `accuracy` is pass@1: the share of right
    traces among right and wrong ones; UNKNOWN (the checker failed) is left out, see `unknown_rate`. Tokens are those of
    a response: thinking, the end-of-think tag, answer and EOS; `answer_tokens_mean` counts what follows the tag.
    `nrp_share`: necessary over all thinking tokens of right traces with a detected prefix (PNRP of arXiv 2509.25827,
    section 6); `detector_misses`: right traces without one, as a share of right traces. `tokens_per_correct`: all
    tokens spent over right traces. `tokens_per_point`: mean tokens over accuracy in points (0 to 100), None at 0 points
    (OckBench, arXiv 2511.05722, calls it reasoning efficiency). Intervals are 95 % bootstrap over problems, since the
    samples of one problem do not vary independently.
    """

    n: int
    problems: int
    accuracy: float | None
    tokens_mean: float | None
    think_tokens_mean: float | None
    answer_tokens_mean: float | None
    nrp_share: float | None
    tokens_per_correct: float | None
    tokens_per_point: float | None
    truncated_rate: float | None
    unknown_rate: float | None
    detector_misses: float | None
    accuracy_interval: Interval | None
    tokens_interval: Interval | None
    nrp_interval: Interval | None
    tokens_per_correct_interval: Interval | None

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None where there is nothing to divide by."""
    return part / whole if whole else None


def bootstrap(
    parts: Sequence[float], wholes: Sequence[float] | None = None, rounds: int = 1000, seed: int = 0
) -> Interval | None:
    """95 % percentile interval of sum(parts) / sum(wholes) where the pairs, one a problem, are drawn again.

    `wholes` None: of the mean of `parts`. None for fewer than two problems, whose spread is unknown, or where most
    draws have nothing to divide by.
    """
    if len(parts) < 2:
        return None
    pairs = list(zip(parts, wholes or [1.0] * len(parts), strict=True))
    rng = random.Random(seed)
    draws = (rng.choices(pairs, k=len(pairs)) for _ in range(rounds))
    found = [sum(p for p, _ in draw) / whole for draw in draws if (whole := sum(w for _, w in draw))]
    if 2 * len(found) < rounds:
        return None
    return quantile_interval(found)


def by_problem(traces: Iterable[ScoredTrace]) -> dict[str, list[ScoredTrace]]:
    """The traces of each problem, by its id."""
    groups: dict[str, list[ScoredTrace]] = {}
    for scored in traces:
        groups.setdefault(scored.trace.problem_id, []).append(scored)
    return groups


def nrp_share(traces: Sequence[ScoredTrace]) -> float | None:
    """Necessary over all thinking tokens of right traces whose prefix was found."""
    return ratio(*nrp_tokens(traces))


def nrp_tokens(traces: Sequence[ScoredTrace]) -> tuple[int, int]:
    """Necessary and all thinking tokens of right traces whose prefix was found."""
    found = [t for t in traces if t.correct and t.prefix_length is not None]
    return sum(t.prefix_length or 0 for t in found), sum(t.think_length for t in found)


def share(traces: Sequence[ScoredTrace], holds: Callable[[ScoredTrace], bool]) -> float | None:
    """The share of traces of which something holds."""
    return ratio(sum(holds(t) for t in traces), len(traces))


def problem_means(groups: Iterable[Sequence[ScoredTrace]], value: Callable[[ScoredTrace], float | None]) -> list[float]:
    """A mean for each problem, over its traces that have the value; problems without one are left out."""
    known = ([v for v in map(value, group) if v is not None] for group in groups)
    return [fmean(values) for values in known if values]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def summarise(traces: Sequence[ScoredTrace], intervals: bool = True) -> Summary:
    """The summary of any number of scored traces, none included; bootstrap intervals take most of its time."""
    groups = list(by_problem(traces).values())
    right = [t for t in traces if t.correct]
    accuracies = problem_means(groups, lambda t: None if t.correct is None else float(t.correct))
    lengths = problem_means(groups, lambda t: t.length)
    necessary, thinking = zip(*map(nrp_tokens, groups), strict=True) if groups else ((), ())
    spent, solved = [sum(t.length for t in g) for g in groups], [sum(bool(t.correct) for t in g) for g in groups]
    accuracy = _mean(accuracies)
    interval = bootstrap if intervals else lambda *values: None
    return Summary(
        n=len(traces),
        problems=len(groups),
        accuracy=accuracy,
        tokens_mean=_mean(lengths),
        think_tokens_mean=_mean(problem_means(groups, lambda t: t.think_length)),
        answer_tokens_mean=_mean(problem_means(groups, lambda t: t.length - t.answer_start)),
        nrp_share=nrp_share(traces),
        tokens_per_correct=ratio(sum(spent), len(right)),
        tokens_per_point=ratio(fmean(lengths), 100 * accuracy) if accuracy else None,
        truncated_rate=share(traces, lambda t: t.trace.stop is Stop.LENGTH),
        unknown_rate=share(traces, lambda t: t.correct is None),
        detector_misses=share(right, lambda t: t.prefix_length is None),
        accuracy_interval=interval(accuracies),
        tokens_interval=interval(lengths),
        nrp_interval=interval(necessary, thinking),
        tokens_per_correct_interval=interval(spent, solved),
    )
