"""Figures over an evaluation's samples: pass@k, accuracy under token budgets, and accuracy by difficulty."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from pipeline.evaluation.estimators import pass_at_k
from pipeline.evaluation.scoring import ScoredTrace
from pipeline.evaluation.summary import Summary, bootstrap, by_problem, problem_means, share, summarise
from pipeline.problems import Problem

Figure = dict[str, object]
FIRST_BUDGET = 2048  # tokens; further ones double
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)  # of the limit, where the limit leaves no room for doubling


def pass_figures(traces: Sequence[ScoredTrace]) -> dict[int, Figure]:
    """pass@k for k = 1, 2, 4, ... as far as the samples of some problem reach: value, interval, number of problems.

    Over problems with at least k verdicts (UNKNOWN is none), each unbiased; where checks failed, or samples are still
    missing, `problems` says how many those are.
    """
    verdicts = [[t.correct for t in group if t.correct is not None] for group in by_problem(traces).values()]
    most = max(map(len, verdicts), default=0)
    found = {}
    for k in (2**power for power in range(most.bit_length())):
        values = [pass_at_k(len(known), sum(known), k) for known in verdicts if len(known) >= k]
        found[k] = {"value": fmean(values), "interval": bootstrap(values), "problems": len(values)}
    return found


def budget_figures(traces: Sequence[ScoredTrace], budgets: Iterable[int]) -> dict[int, Figure]:
    """Accuracy if every reply were cut after so many tokens: a longer one is unanswered, and so not right.

    From the same samples; UNKNOWN verdicts are left out at every budget, so that the denominators are the same.
    """
    return {budget: _under(list(by_problem(traces).values()), budget) for budget in sorted(budgets)}


def _under(groups: Sequence[Sequence[ScoredTrace]], budget: int) -> Figure:
    values = problem_means(groups, lambda t: None if t.correct is None else float(t.correct and t.length <= budget))
    return {
        "accuracy": fmean(values) if values else None,
        "interval": bootstrap(values),
        "answered": share([t for group in groups for t in group], lambda t: t.length <= budget),
    }


def default_budgets(limit: int) -> list[int]:
    """2k, 4k, ... and the limit itself where the limit is at least 4k tokens; else eighths and quarters of it."""
    if limit < 2 * FIRST_BUDGET:
        return sorted({max(1, round(limit * share)) for share in SHARES})
    doubled = [FIRST_BUDGET << power for power in range(limit.bit_length()) if FIRST_BUDGET << power < limit]
    return [*doubled, limit]


def difficulty(problem: Problem) -> str | None:
    """The level that a problem's source states, None where it states none. Never the model's own success.

    Tiny problems: terms of a chain sum or of both sums compared, trials until the pair is found. Scales of different
    families have nothing to do with each other, so the label names the family.
    """
    meta = problem.meta
    if "level" in meta:
        return str(meta["level"])
    family = str(meta.get("family"))
    if family == "chain_sum":
        return f"{family}, {meta['terms']} terms"
    if family == "search":
        return f"{family}, {_counted(meta['trials'], 'trial')}"
    if family == "compare":
        terms = sum((len(str(expression).split(" ")) + 1) // 2 for expression in meta["expressions"])
        return f"{family}, {terms} terms"
    return None


def _counted(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def by_label(traces: Sequence[ScoredTrace], labels: Mapping[str, str | None]) -> dict[str, Summary]:
    """A summary for each label of problems (`labels`: problem id -> label), in natural order; None labels are left
    out."""
    groups: dict[str, list[ScoredTrace]] = {}
    for scored in traces:
        label = labels[scored.trace.problem_id]
        if label is not None:
            groups.setdefault(label, []).append(scored)
    return {label: summarise(groups[label]) for label in sorted(groups, key=_natural)}


def _natural(label: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in label.replace(",", " ,").split()]
