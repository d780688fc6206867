"""Whether a candidate passes the gate: its measurement against the champion's, and both against the limits. Pure.

Intervals are percentile bootstraps over problems, since the replies to one problem do not vary independently; candidate
and champion are drawn together (the same problems each time), so that how hard the problems happen to be does not widen
the interval of a difference. The draws have a fixed seed: equal measurements give equal decisions.

A limit is crossed where

    problems        fewer than gate.min_problems have replies (the champion's too, where there is one)
    accuracy        below gate.min_accuracy, or without any verdict
    unknown rate    the lower bound is above gate.max_unknown_rate; truncation rate alike
    parity          above gate.parity_limit, or not a number
    accuracy difference to the champion   the upper bound is below 0, or the estimate below -gate.max_accuracy_drop
    tokens ratio to the champion          the lower bound is above gate.max_tokens_ratio

Only the last two need a champion; the very first version, which has none, passes without. Where there is a champion
but no measurement of it, nothing passes. The necessary share of thinking and the seconds a reply are shown without a
limit: the first has no better or worse for users, the second is judged on the endpoint.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pipeline.config import RunConfig
from pipeline.config.schema import Gate
from pipeline.evaluation.estimators import interval
from pipeline.evaluation.tally import Measurement, Tally
from serve.promotion.check import Check, Decision, Interval

ROUNDS = 1000
Array = NDArray[np.float64]
REPLIES, RIGHT, UNKNOWN, TRUNCATED, TOKENS, NECESSARY, THINKING = range(7)


def limits_of(cfg: RunConfig) -> Gate:
    """`gate` with the parity limit in effect: of engines that compute in float32 publish.parity_limit unless it has its
    own. Rounding alone puts others further from the reference."""
    exact = cfg.engine.dtype == "float32"
    limit = cfg.gate.parity_limit or (cfg.publish.parity_limit if exact else None)
    return cfg.gate.model_copy(update={"parity_limit": limit})


def decide(
    candidate: Measurement, champion: Measurement | None, limits: Gate, *, first: bool = False, name: str = ""
) -> Decision:
    """The decision. `champion`: the measurement of the present one, called `name` in texts. Without it the absolute
    limits alone decide on the `first` version only, when there is no champion at all; any other version is refused.

    ValueError where the two were not asked the same.
    """
    if champion is not None and champion.asked != candidate.asked:
        raise ValueError(f"measurements of other problems or sampling: {champion.asked[:12]}, {candidate.asked[:12]}")
    keys = sorted(candidate.problems)
    rows = _rows(candidate, keys)
    checks = [*_absolute(candidate, rows, limits)]
    if champion is None:
        if first:
            return Decision(tuple(checks), "there is no champion to compare with")
        lacking = f"the champion {name} is not measured" if name else "the champion is not measured"
        return Decision(tuple(checks), lacking=lacking)
    common = [key for key in keys if key in champion.problems]
    pairs = np.stack([_rows(candidate, common), _rows(champion, common)])
    return Decision((*checks, *_against(pairs, limits), *_shown(candidate, champion, pairs, limits)))


def _absolute(candidate: Measurement, rows: Array, limits: Gate) -> list[Check]:
    accuracy = _value(_accuracy, rows)
    parity, most = candidate.parity, limits.parity_limit
    checks = [
        Check("problems answered", len(rows), None, limits.min_problems, len(rows) < limits.min_problems),
        Check(
            "accuracy",
            accuracy,
            _interval(_accuracy, rows, limits),
            limits.min_accuracy,
            accuracy is None or accuracy < limits.min_accuracy,
        ),
    ]
    for name, column, allowed in (
        ("unknown rate", UNKNOWN, limits.max_unknown_rate),
        ("truncation rate", TRUNCATED, limits.max_truncation_rate),
    ):
        rate = _share(column, REPLIES)
        checks.append(_at_most(name, _value(rate, rows), _interval(rate, rows, limits), allowed))
    far = parity is not None and most is not None and not parity <= most
    return [*checks, Check("parity (nats)", parity, None, None if parity is None else most, far)]


def _against(pairs: Array, limits: Gate) -> list[Check]:
    """`pairs` [2, P, 7]: candidate and champion."""
    problems = pairs.shape[1]
    difference = _value(_difference, pairs)
    bounds = _interval(_difference, pairs, limits)
    worse = difference is not None and (
        difference < -limits.max_accuracy_drop or (bounds is not None and bounds[1] < 0)
    )
    ratio = _value(_tokens_ratio, pairs), _interval(_tokens_ratio, pairs, limits)
    return [
        Check("problems in common", problems, None, limits.min_problems, problems < limits.min_problems),
        Check("accuracy difference", difference, bounds, -limits.max_accuracy_drop, worse),
        _at_most("tokens ratio", *ratio, limits.max_tokens_ratio),
    ]


def _shown(candidate: Measurement, champion: Measurement, pairs: Array, limits: Gate) -> list[Check]:
    share = _share(NECESSARY, THINKING)
    shown = [
        Check(f"necessary share, {name}", _value(share, rows), _interval(share, rows, limits))
        for name, rows in zip(("candidate", "champion"), pairs, strict=True)
    ]
    shown += [
        Check(f"tokens a reply, {name}", _value(_tokens, rows), _interval(_tokens, rows, limits))
        for name, rows in zip(("candidate", "champion"), pairs, strict=True)
    ]
    seconds = [
        Check(f"seconds a reply, {name}", measured.seconds_a_reply)
        for name, measured in (("candidate", candidate), ("champion", champion))
    ]
    return [*shown, *seconds]


def _at_most(name: str, value: float | None, bounds: Interval | None, allowed: float) -> Check:
    """Crossed where the lower bound is above what is allowed; without an interval, where the value is."""
    low = bounds[0] if bounds else value
    return Check(name, value, bounds, allowed, low is not None and low > allowed)


# --- figures: functions of rows [..., P, 7], or of pairs [2, ..., P, 7], NaN or infinite where nothing divides -----

Figure = Callable[[Array], Array]


def _rows(measured: Measurement, keys: list[str]) -> Array:
    return np.array([_row(measured.problems[key]) for key in keys], dtype=float).reshape(len(keys), THINKING + 1)


def _row(tally: Tally) -> list[int]:
    return [
        tally.replies,
        tally.right,
        tally.unknown,
        tally.truncated,
        tally.tokens,
        tally.necessary,
        tally.thinking,
    ]


def _by_problem(rows: Array) -> Array:
    """Accuracy [..., P] among the replies with a verdict; NaN where a problem has none."""
    return rows[..., RIGHT] / (rows[..., REPLIES] - rows[..., UNKNOWN])


def _accuracy(rows: Array) -> Array:
    return _mean_known(_by_problem(rows))


def _difference(pairs: Array) -> Array:
    return _mean_known(_by_problem(pairs[0]) - _by_problem(pairs[1]))


def _tokens(rows: Array) -> Array:
    return (rows[..., TOKENS] / rows[..., REPLIES]).mean(-1)


def _tokens_ratio(pairs: Array) -> Array:
    return _tokens(pairs[0]) / _tokens(pairs[1])


def _share(part: int, whole: int) -> Figure:
    return lambda rows: rows[..., part].sum(-1) / rows[..., whole].sum(-1)


def _mean_known(values: Array) -> Array:
    known = ~np.isnan(values)
    return np.where(known, values, 0).sum(-1) / known.sum(-1)


def _value(figure: Figure, rows: Array) -> float | None:
    if rows.shape[-2] == 0:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(figure(rows))
    return value if math.isfinite(value) else None


def _interval(figure: Figure, rows: Array, limits: Gate) -> Interval | None:
    """None for fewer than two problems, or where a draw has nothing to divide by."""
    problems = rows.shape[-2]
    if problems < 2:
        return None
    drawn = np.random.default_rng(0).integers(0, problems, (ROUNDS, problems))
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = figure(rows[..., drawn, :])
    if not np.isfinite(samples).all():
        return None
    return interval(samples, limits.confidence)
