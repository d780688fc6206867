"""From the measurements of several arms and seeds to one comparison. Pure: plain, JSON-ready data in and out.

An arm's record (one arm, one seed) has `arm`, `seed`, `measured` (see `measure`) and, for a trained one, `traces`,
`tokens_sampled`, `kept_share`, `issued_digest`, `curves` (metric -> [[step, value]]) and `seconds`. The start model's
record has the arm `START`.
"""

import random
import statistics
from collections.abc import Iterable, Mapping, Sequence

from pipeline.evaluation.estimators import aes
from pipeline.evaluation.measured import FIGURES

Record = Mapping[str, object]
Plain = dict[str, object]

START = "start"
SCORES = (*FIGURES, "aes")
SPENT = ("traces", "tokens_sampled", "kept_share")  # what training took
BOOTSTRAPS = 1000


def compare(records: Sequence[Record], about: Mapping[str, object], failures: Sequence[Mapping[str, object]]) -> Plain:
    """The whole comparison: the start model and each arm, by seed and over seeds, the budget, and what failed.

    `about` says what was run (it is kept, and its `traces_per_arm` is what every arm must have sampled). AES is
    against the start model measured with the same seed.
    """
    starts = {r["seed"]: r for r in records if r["arm"] == START}
    trained = [r for r in records if r["arm"] != START]
    names = list(dict.fromkeys(r["arm"] for r in trained))
    arms = {name: _arm([_scored(r, starts[r["seed"]]) for r in trained if r["arm"] == name]) for name in names}
    return {
        **about,
        "start": _arm([_scored(r, r) for r in starts.values()]),
        "arms": arms,
        "budget": budget(trained, int(about["traces_per_arm"])),
        "failures": list(failures),
    }


def budget(trained: Sequence[Record], expected: int) -> Plain:
    """Whether every arm sampled the same number of traces of the same problems; `complaints` say which did not."""
    complaints = [
        f"{r['arm']} (seed {r['seed']}) sampled {r['traces']} traces, not {expected}"
        for r in trained
        if r["traces"] != expected
    ]
    for seed in sorted({r["seed"] for r in trained}):
        by_problems: dict[object, list[str]] = {}
        for r in trained:
            if r["seed"] == seed:
                by_problems.setdefault(r["issued_digest"], []).append(str(r["arm"]))
        if len(by_problems) > 1:
            complaints.append(f"seed {seed}: arms saw different problems: {list(by_problems.values())}")
    return {"traces_per_arm": expected, "equal": not complaints, "complaints": complaints}


def _scored(record: Record, start: Record) -> Plain:
    """One seed's figures with AES, overall and for each family."""
    measured, base = record["measured"], start["measured"]
    families = {
        name: {**figures, "aes": _aes(figures, base["by_family"][name])}
        for name, figures in measured["by_family"].items()
    }
    whole = {**{name: measured[name] for name in FIGURES}, "aes": _aes(_over(families), _over(base["by_family"]))}
    spent = {name: record[name] for name in (*SPENT, "curves", "seconds", "mlflow_run_id") if name in record}
    return {"seed": record["seed"], **whole, "by_family": families, **spent, "replies": measured["replies"]}


def _over(families: Mapping[str, Mapping[str, object]]) -> Plain:
    """Means over families, as AES takes them over benchmarks; None where a family has no figure."""
    return {name: _mean([figures[name] for figures in families.values()]) for name in ("accuracy", "tokens_mean")}


def _aes(figures: Mapping[str, object], base: Mapping[str, object]) -> float | None:
    values = [figures["accuracy"], figures["tokens_mean"], base["accuracy"], base["tokens_mean"]]
    return aes(*values) if all(v is not None for v in values) and values[2] and values[3] else None


def _mean(values: Iterable[float | None]) -> float | None:
    values = list(values)
    return statistics.fmean(values) if values and None not in values else None


def _spread(values: Iterable[float | None]) -> float | None:
    """Standard deviation over seeds (ddof 1); None for one seed or where one has no figure."""
    values = list(values)
    return statistics.stdev(values) if len(values) > 1 and None not in values else None


def _arm(seeds: Sequence[Plain]) -> Plain:
    """One arm: its seeds, and mean and spread over them, overall and for each family."""
    families = list(seeds[0]["by_family"]) if seeds else []
    found: Plain = {
        "seeds": {str(s["seed"]): {k: v for k, v in s.items() if k not in ("seed", "replies")} for s in seeds},
        "covariance": covariance(seeds),
        "covariance_over": "seeds" if len(seeds) > 1 else "resampled replies",
    }
    for name, over in (("mean", _mean), ("spread", _spread)):
        found[name] = {key: over([s[key] for s in seeds]) for key in (*SCORES, *SPENT) if seeds and key in seeds[0]}
        found[name]["by_family"] = {
            family: {key: over([s["by_family"][family][key] for s in seeds]) for key in SCORES} for family in families
        }
    return found


def covariance(seeds: Sequence[Plain]) -> list[list[float]] | None:
    """Covariance [2, 2] of (tokens a reply, accuracy): over seeds; of one seed's resampled replies where there is only
    one. None where an accuracy is not known."""
    if len(seeds) == 1:
        points = resampled(seeds[0]["replies"])
    else:
        points = [(s["tokens_mean"], s["accuracy"]) for s in seeds]
    if len(points) < 2 or any(value is None for point in points for value in point):
        return None
    columns = list(zip(*points, strict=True))
    return [[statistics.covariance(a, b) for b in columns] for a in columns]


def resampled(
    replies: Sequence[tuple[bool | None, int]], rounds: int = BOOTSTRAPS, seed: int = 0
) -> list[tuple[float, float]]:
    """(tokens a reply, accuracy) of `rounds` bootstrap samples of (verdict, tokens); replies without a verdict do not
    count for accuracy."""
    rng, found = random.Random(seed), []
    if not any(correct is not None for correct, _ in replies):
        return []
    while len(found) < rounds:
        drawn = rng.choices(replies, k=len(replies))
        known = [correct for correct, _ in drawn if correct is not None]
        if known:
            found.append((statistics.fmean(t for _, t in drawn), statistics.fmean(map(float, known))))
    return found
