"""The report of an evaluation: all figures as plain data, and as text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import UserError
from pipeline.evaluation.estimators import aes
from pipeline.evaluation.figures import budget_figures, by_label, difficulty, pass_figures
from pipeline.evaluation.samples import first_difference
from pipeline.evaluation.scoring import ScoredTrace
from pipeline.evaluation.summary import summarise
from pipeline.problems import Problem

Report = dict[str, Any]
COMPARED = ("suite", "sampling", "scoring")  # parts of the identity that a base must share


def build_report(
    identity: Mapping[str, Any],
    problems: Sequence[Problem],
    samples: int,
    scored: Sequence[ScoredTrace],
    budgets: Sequence[int],
    base: Report | None = None,
) -> Report:
    """Figures over `scored`, out of `samples` a problem: of all, by source, and by the difficulty that sources state.

    JSON-ready. With a `base` (another report) `all.aes` is the accuracy-efficiency score against it.
    """
    summary = summarise(scored)
    found = {
        **summary.to_dict(),
        "pass_at_k": {str(k): figure for k, figure in pass_figures(scored).items()},
        "budgets": {str(budget): figure for budget, figure in budget_figures(scored, budgets).items()},
        "aes": _aes(summary.to_dict(), base),
    }
    sources = by_label(scored, {p.id: p.source for p in problems})
    levels = by_label(scored, {p.id: difficulty(p) for p in problems})
    return {
        "identity": dict(identity),
        "samples_a_problem": samples,
        "missing": len(problems) * samples - len(scored),
        "all": found,
        "by_source": {name: part.to_dict() for name, part in sources.items()},
        "by_difficulty": {name: part.to_dict() for name, part in levels.items()},
        "versions": sorted({span.version for s in scored for span in s.trace.versions}),
    }


def check_base(base: Report, identity: Mapping[str, Any], where: str) -> None:
    """UserError unless `base` was measured on the same problems, with the same sampling and scoring (the number of
    samples and the seed may differ)."""
    try:
        kept, figures = base["identity"], base["all"]
        numbers = [float(figures[name]) for name in ("tokens_mean", "accuracy")]
        parts = {part: dict(kept[part]) for part in COMPARED}
    except (KeyError, TypeError, ValueError):
        numbers, parts = [math.nan], {}
    if not all(map(math.isfinite, numbers)):
        raise UserError(f"--base {where} is no report of jobs.evaluate with figures; give its evaluation.json")
    for part in COMPARED:
        mine, theirs = ({k: v for k, v in whole[part].items() if k != "seed"} for whole in (identity, parts))
        if odd := first_difference(theirs, mine, part):
            name, was, now = odd
            raise UserError(
                f"--base {where} is not comparable: its {name} is {was}, here it is {now}; measure it again"
            )


def _aes(figures: Mapping[str, Any], base: Report | None) -> float | None:
    if base is None or figures["accuracy"] is None:
        return None
    accuracy, tokens = base["all"]["accuracy"], base["all"]["tokens_mean"]
    return aes(figures["accuracy"], figures["tokens_mean"], accuracy, tokens) if accuracy and tokens else None


def report_text(report: Report) -> str:
    """The figures that a table of means does not show: intervals, pass@k, budgets, difficulty."""
    found = report["all"]
    lines = [
        f"accuracy (pass@1) {_interval(found['accuracy'], found['accuracy_interval'])}, "
        f"tokens {_interval(found['tokens_mean'], found['tokens_interval'], '.1f')}, "
        f"NRP share {_interval(found['nrp_share'], found['nrp_interval'])}",
        f"tokens: thinking {_shown(found['think_tokens_mean'], '.1f')}, answer "
        f"{_shown(found['answer_tokens_mean'], '.1f')}; a correct answer "
        f"{_interval(found['tokens_per_correct'], found['tokens_per_correct_interval'], '.1f')}, a point of accuracy "
        f"{_shown(found['tokens_per_point'], '.2f')}",
        "intervals: 95 %, drawn over problems; accuracy leaves out unknown verdicts "
        f"({_shown(found['unknown_rate'], '.1%')} of replies)",
        _row("pass@k", {k: _interval(f["value"], f["interval"]) for k, f in found["pass_at_k"].items()}),
        _row("accuracy cut after", {b: _shown(f["accuracy"]) for b, f in found["budgets"].items()}, " tokens"),
    ]
    if found["aes"] is not None:
        lines.append(f"AES against the base: {found['aes']:.3f}")
    lines.append(_difficulties(report["by_difficulty"]))
    return "\n".join(lines)


def _difficulties(levels: Mapping[str, Mapping[str, Any]]) -> str:
    if not levels:
        return "difficulty: these problems state none"
    width = max(map(len, levels))
    head = f"{'difficulty':{width}}  problems  accuracy                  unknown   tokens  NRP share"
    return "\n".join(
        [
            head,
            *(
                f"{name:{width}}  {part['problems']:8}  {_interval(part['accuracy'], part['accuracy_interval']):24}  "
                f"{_shown(part['unknown_rate'], '.3f'):>7}  {_shown(part['tokens_mean'], '.1f'):>7}  "
                f"{_shown(part['nrp_share']):>9}"
                for name, part in levels.items()
            ),
        ]
    )


def _row(name: str, cells: Mapping[str, str], unit: str = "") -> str:
    return f"{name}{unit}: " + "   ".join(f"{key}: {cell}" for key, cell in cells.items())


def _shown(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)


def _interval(value: float | None, interval: Sequence[float] | None, form: str = ".3f") -> str:
    edges = f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else ""
    return _shown(value, form) + edges
