"""What one measurement of a model on held-out problems keeps for comparisons. Pure; JSON-ready."""

import re
from collections.abc import Mapping, Sequence

from pipeline.evaluation.scoring import ScoredTrace
from pipeline.evaluation.summary import nrp_share, ratio, summarise
from pipeline.problems import Problem

FIGURES = ("accuracy", "tokens_mean", "nrp_share", "tokens_per_correct")
RATES = ("n", "truncated_rate", "unknown_rate", "detector_misses")
WORDS = ("Wait", "But", "Hmm", "Alternatively")  # of reconsideration
LEVELS = ("level", "terms", "trials")  # what a problem's `meta` may call its difficulty; the first that is there


def family_of(problem: Problem) -> str:
    """The tiny family, else the source."""
    return str(problem.meta.get("family") or problem.source)


def level_of(problem: Problem) -> str | None:
    """How hard a problem is, as its source says; None where it does not."""
    return next((str(problem.meta[key]) for key in LEVELS if key in problem.meta), None)


def measure(scored: Sequence[ScoredTrace], problems: Mapping[str, Problem], think_end: str) -> dict[str, object]:
    """Figures of all replies and of each family (`by_family`: also words of reconsideration a reply and the NRP share
    by level), and `replies`: (verdict, tokens) of each, for resampling. `problems` by id."""
    families: dict[str, list[ScoredTrace]] = {name: [] for name in sorted(map(family_of, problems.values()))}
    for trace in scored:
        families[family_of(problems[trace.trace.problem_id])].append(trace)
    return {
        **_figures(scored),
        "by_family": {name: _family(traces, problems, think_end) for name, traces in families.items()},
        "replies": [(t.correct, t.length) for t in scored],
    }


def _figures(scored: Sequence[ScoredTrace]) -> dict[str, object]:
    summary = summarise(scored, intervals=False).to_dict()
    return {name: summary[name] for name in (*FIGURES, *RATES)}


def _family(scored: Sequence[ScoredTrace], problems: Mapping[str, Problem], think_end: str) -> dict[str, object]:
    levels = sorted({level for t in scored if (level := level_of(problems[t.trace.problem_id]))})
    by_level = {lvl: [t for t in scored if level_of(problems[t.trace.problem_id]) == lvl] for lvl in levels}
    return {
        **_figures(scored),
        "words": words_per_reply([t.trace.text for t in scored], think_end),
        "nrp_by_level": {level: nrp_share(traces) for level, traces in by_level.items()},
    }


def words_per_reply(texts: Sequence[str], think_end: str) -> dict[str, float | None]:
    """Mean count of each of `WORDS` in the thinking of a reply."""
    thinking = [text.split(think_end)[0] for text in texts]
    return {word: ratio(sum(len(re.findall(rf"\b{word}\b", t)) for t in thinking), len(thinking)) for word in WORDS}
