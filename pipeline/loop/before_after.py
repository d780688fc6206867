"""Two versions of one policy on the same problems: every figure before and after, and what changed. Pure.

Intervals are 95 % bootstrap over problems, since the replies to one problem do not vary independently. Both versions
are drawn together (the same problems each time), so that the interval of a change is not widened by how hard the
problems happen to be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation import ScoredTrace, aes
from pipeline.evaluation.estimators import interval
from pipeline.problems import Problem
from pipeline.tracking.catalogue import SHORT
from pipeline.tracking.run_report_data import BeforeAfter, Estimate, Figure, FigureName, History

ROUNDS = 1000
LEAST = 10  # problems; of fewer, drawing them again says nothing about others
Array = NDArray[np.float64]
NONE: Array = np.array([])


@dataclass(frozen=True)
class Answered:
    """One problem's replies by one version; JSON-ready. `accuracy` is over replies with a verdict, None without one;
    `necessary` and `thinking` count tokens of right replies whose prefix was found."""

    source: str
    accuracy: float | None
    tokens: float  # mean length
    spent: int
    solved: int
    necessary: int
    thinking: int

    def row(self) -> list[float]:
        """Numbers, NaN for an accuracy that is not known."""
        accuracy = np.nan if self.accuracy is None else self.accuracy
        return [accuracy, self.tokens, self.spent, self.solved, self.necessary, self.thinking]


Answers = Mapping[str, Answered]  # by problem id


def answered(scored: Sequence[ScoredTrace], problems: Mapping[str, Problem]) -> dict[str, Answered]:
    """Scored replies, gathered by problem."""
    groups: dict[str, list[ScoredTrace]] = {}
    for trace in scored:
        groups.setdefault(trace.trace.problem_id, []).append(trace)
    return {key: _answered(group, problems[key].source) for key, group in groups.items()}


def _answered(group: Sequence[ScoredTrace], source: str) -> Answered:
    known = [float(t.correct) for t in group if t.correct is not None]
    found = [t for t in group if t.correct and t.prefix_length is not None]
    return Answered(
        source=source,
        accuracy=fmean(known) if known else None,
        tokens=fmean(t.length for t in group),
        spent=sum(t.length for t in group),
        solved=sum(bool(t.correct) for t in group),
        necessary=sum(t.prefix_length or 0 for t in found),
        thinking=sum(t.think_length for t in found),
    )


def compare(before: Answers, after: Answers, versions: tuple[str, str], where: str) -> BeforeAfter:
    """The comparison over the problems that both versions answered, and for each source alone.

    Accuracy and tokens are means over problems of means over replies; tokens per right answer are all tokens over all
    right replies; the necessary share is over the thinking of right replies whose prefix was found.
    """
    common = [key for key in before if key in after]
    figures, score = _compared(before, after, common)
    sources = {before[key].source for key in common}
    by_source = {
        source: _compared(before, after, [key for key in common if before[key].source == source])[0]
        for source in sources
        if len(sources) > 1
    }
    return BeforeAfter(where, versions, figures, score, by_source)


def batch_change(history: History) -> BeforeAfter:
    """The first and the last batch of a run, from its history: the next best where nothing was measured apart."""
    lengths = history.get(SHORT["tokens_mean"].name, {})
    steps = (min(lengths), max(lengths)) if len(lengths) > 1 else None
    if steps is None:
        return BeforeAfter("neither held-out problems nor two batches were measured", ("–", "–"), {})
    ends = [_batch(history, step) for step in steps]
    rows = {name: np.array([end[name] for end in ends]) for name in FigureName}
    changes = _changes(rows)
    figures = {
        name: Figure(*(_estimate(value) for value in rows[name]), _estimate(changes[name])) for name in FigureName
    }
    where = (
        "No held-out problems were answered both before and after (run.report_problems, problems.held_out): these are "
        "the averages of the first and of the last batch, which hold other problems each, so they have no intervals."
    )
    return BeforeAfter(where, (str(steps[0]), str(steps[1])), figures, _estimate(_aes(rows)))


def _batch(history: History, step: int) -> dict[FigureName, float]:
    accuracy, tokens, share, unknown = (
        history.get(SHORT[name].name, {}).get(step, np.nan)
        for name in ("accuracy", "tokens_mean", "nrp_share_tokens", "unknown_rate")
    )
    right = accuracy * (1 - unknown)  # of all replies
    return {
        FigureName.ACCURACY: accuracy,
        FigureName.TOKENS: tokens,
        FigureName.TOKENS_PER_CORRECT: tokens / right if right else np.nan,
        FigureName.NRP_SHARE: share,
    }


def _compared(before: Answers, after: Answers, keys: Sequence[str]) -> tuple[dict[FigureName, Figure], Estimate]:
    if not keys:
        return {}, Estimate()
    rows = np.array([[side[key].row() for key in keys] for side in (before, after)])  # [2, P, 6]
    rounds = ROUNDS if len(keys) >= LEAST else 0
    drawn = rows[:, np.random.default_rng(0).integers(0, len(keys), (rounds, len(keys)))]  # [2, R, P, 6]
    whole, samples = _figures(rows), _figures(drawn)
    changes, moved = _changes(whole), _changes(samples)
    sides = {name: [_estimate(whole[name][i], samples[name][i]) for i in (0, 1)] for name in FigureName}
    figures = {name: Figure(*sides[name], _estimate(changes[name], moved[name])) for name in FigureName}
    return figures, _estimate(_aes(whole), np.array([_aes(samples, draw) for draw in range(rounds)]))


def _figures(rows: Array) -> dict[FigureName, Array]:
    """Figures [...] over the problems of rows [..., P, 6]; NaN or infinite where there is nothing to divide by."""
    known = ~np.isnan(rows[..., 0])
    spent, solved, necessary, thinking = (rows[..., column].sum(-1) for column in (2, 3, 4, 5))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            FigureName.ACCURACY: np.where(known, rows[..., 0], 0).sum(-1) / known.sum(-1),
            FigureName.TOKENS: rows[..., 1].mean(-1),
            FigureName.TOKENS_PER_CORRECT: spent / solved,
            FigureName.NRP_SHARE: necessary / thinking,
        }


def _changes(figures: Mapping[FigureName, Array]) -> dict[FigureName, Array]:
    """Differences of shares, and relative changes of tokens; `figures` [2, ...]."""
    relative = (FigureName.TOKENS, FigureName.TOKENS_PER_CORRECT)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {name: (a - b) / (b if name in relative else 1) for name, (b, a) in figures.items()}


def _aes(figures: Mapping[FigureName, Array], draw: int | tuple[()] = ()) -> float:
    (base, accuracy), (long, tokens) = (figures[name] for name in (FigureName.ACCURACY, FigureName.TOKENS))
    if not base[draw] > 0 or np.isnan(accuracy[draw]):
        return np.nan
    return aes(float(accuracy[draw]), float(tokens[draw]), float(base[draw]), float(long[draw]))


def _estimate(value: Array | float, samples: Array = NONE) -> Estimate:
    """The value, with its interval where there are draws and each of them has a value."""
    if not np.isfinite(value):
        return Estimate()
    if not samples.size or not np.isfinite(samples).all():
        return Estimate(float(value))
    return Estimate(float(value), *interval(samples))
