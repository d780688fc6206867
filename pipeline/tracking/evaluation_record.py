"""What an evaluation leaves in MLflow: figures as metrics, the report, a table and a plot."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.tracking.catalogue import for_source
from pipeline.tracking.figures import BLUE, GREEN, INK, SOFT, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipeline.tracking.tracker import Tracker

Report = Mapping[str, Any]
FIGURES = ("accuracy", "unknown_rate", "tokens_mean", "nrp_share", "tokens_per_correct", "truncated_rate")
MOST_LEVELS = 30  # bars of the plot


def keep_evaluation(tracker: "Tracker", report: Report) -> bool:
    """Log `report` (see `pipeline.evaluation.report`) to the open run; False (counted) when the store did not take all
    of it."""
    name = str(report["identity"]["suite"]["name"])
    tracker.log_step(0, evaluation_metrics(report))
    kept = [
        tracker.log_text(json.dumps(report, indent=2), "evaluation.json"),
        tracker.log_table(evaluation_rows(report), "tables/evaluation.json"),
        tracker.log_figure(evaluation_figure(report, name), "figures/evaluation.png"),
    ]
    return all(kept)


def evaluation_metrics(report: Report) -> dict[str, float]:
    """Figures by the catalogue's names, over all problems and for each source; those without a denominator are left
    out."""
    parts = {"": report["all"], **report["by_source"]}
    return {
        for_source(f"eval_{figure}", source) if source else f"eval_{figure}": float(part[figure])
        for source, part in parts.items()
        for figure in FIGURES
        if part[figure] is not None
    }


def evaluation_rows(report: Report) -> list[dict[str, object]]:
    """One row for all problems, each source and each difficulty: figures and intervals as in the report."""
    kinds = {"all": {"all": report["all"]}, "source": report["by_source"], "difficulty": report["by_difficulty"]}
    left_out = ("pass_at_k", "budgets")
    return [
        {"part": kind, "name": name, **{key: value for key, value in part.items() if key not in left_out}}
        for kind, parts in kinds.items()
        for name, part in parts.items()
    ]


def evaluation_figure(report: Report, title: str) -> "Figure":
    """Accuracy if replies were cut after so many tokens, and accuracy by difficulty (by source where none is stated);
    bars and bands are 95 % intervals."""
    from matplotlib.figure import Figure

    levels = report["by_difficulty"] or report["by_source"]
    height = 2.6 + 0.22 * min(len(levels), MOST_LEVELS)
    figure = Figure(figsize=(9, max(height, 4)), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.02, ha="left", fontsize=12, fontweight="bold", color=INK)
    cut, bars = figure.subplots(1, 2)
    _budgets(cut, report["all"]["budgets"])
    _levels(bars, levels)
    return figure


def _budgets(axes: "Axes", budgets: Mapping[str, Mapping[str, Any]]) -> None:
    points = [(int(b), f["accuracy"], f["interval"]) for b, f in budgets.items() if f["accuracy"] is not None]
    if points:
        axes.plot([b for b, _, _ in points], [a for _, a, _ in points], color=BLUE, marker="o", markersize=4)
    banded = [(b, *interval) for b, _, interval in points if interval]
    if banded:
        axes.fill_between(*zip(*banded, strict=True), color=BLUE, alpha=0.15, linewidth=0)
    style(axes, "accuracy")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("replies cut after so many tokens", color=SOFT, fontsize=9)


def _levels(axes: "Axes", levels: Mapping[str, Mapping[str, Any]]) -> None:
    shown = [(name, part) for name, part in levels.items() if part["accuracy"] is not None][:MOST_LEVELS]
    for place, (_, part) in enumerate(reversed(shown)):
        axes.barh(place, part["accuracy"], color=GREEN, height=0.6)
        if part["accuracy_interval"]:
            axes.plot(part["accuracy_interval"], [place, place], color=INK, linewidth=1)
    axes.set_yticks(range(len(shown)), [name for name, _ in reversed(shown)])
    style(axes, "")
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("accuracy", color=SOFT, fontsize=9)
