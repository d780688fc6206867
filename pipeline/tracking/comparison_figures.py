"""Plots of a comparison, from its compare.json. Drawn without a display; numbers as measured, no smoothing."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.tracking.figures import INK, SOFT, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Found = Mapping[str, Any]

DEVIATIONS = 2.0  # an ellipse's half axes, in standard deviations
CURVES = {
    "accuracy": "accuracy",
    "tokens_mean": "tokens a response",
    "nrp_share_tokens": "necessary share",
    "easy_share_realised": "easy groups in the batch",
}


def comparison_figures(found: Found) -> dict[str, "Figure"]:
    """The figures by name: tradeoff, curves, words, levels (the last two only where there is something to draw)."""
    figures = {"tradeoff": tradeoff(found), "curves": curves(found), "words": words(found), "levels": levels(found)}
    return {name: figure for name, figure in figures.items() if figure is not None}


def ellipse_axes(covariance: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Standard deviations along the main axes, longer first, and the angle of the longer one in radians."""
    (a, b), (_, d) = covariance
    middle, half = (a + d) / 2, math.hypot((a - d) / 2, b)
    return math.sqrt(max(middle + half, 0)), math.sqrt(max(middle - half, 0)), 0.5 * math.atan2(2 * b, a - d)


def ellipse_points(arm: Found, corners: int = 72) -> list[tuple[float, float]]:
    """(tokens, accuracy) around the ellipse of `DEVIATIONS` standard deviations; empty where there is no covariance."""
    mean = (arm["mean"].get("tokens_mean"), arm["mean"].get("accuracy"))
    if arm["covariance"] is None or None in mean:
        return []
    # Tokens are hundreds and accuracy is at most 1: scaled alike first, so that the short axis is not lost to rounding.
    scale = (max(mean[0], 1.0), 1.0)
    scaled = [[value / (scale[i] * scale[j]) for j, value in enumerate(row)] for i, row in enumerate(arm["covariance"])]
    long, short, angle = ellipse_axes(scaled)
    points = []
    for corner in range(corners + 1):
        turn = 2 * math.pi * corner / corners
        x, y = DEVIATIONS * long * math.cos(turn), DEVIATIONS * short * math.sin(turn)
        along = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
        points.append((mean[0] + scale[0] * along[0], mean[1] + scale[1] * along[1]))
    return points


def _colours(found: Found) -> dict[str, Any]:
    from matplotlib import colormaps

    return {name: colormaps["tab20"](index % 20) for index, name in enumerate(found["arms"])} | {"start": INK}


def _figure(width: float, height: float, title: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.02, ha="left", fontsize=12, fontweight="bold", color=INK)
    return figure


def tradeoff(found: Found) -> "Figure":
    """Accuracy against tokens a reply, one point an arm; an ellipse shows two standard deviations over the seeds (of
    resampled replies where there is one seed)."""
    figure = _figure(8, 5.5, "Accuracy against tokens a reply")
    axes, colours = figure.subplots(), _colours(found)
    for name, arm in {"start": found["start"], **found["arms"]}.items():
        mean = arm["mean"]
        if mean.get("accuracy") is None or mean.get("tokens_mean") is None:
            continue
        marker = "s" if name == "start" else "*" if name == "decs" else "o"
        size = 11 if name == "decs" else 6
        axes.plot([mean["tokens_mean"]], [mean["accuracy"]], marker, color=colours[name], markersize=size, label=name)
        if ring := ellipse_points(arm):
            axes.plot(*zip(*ring, strict=True), color=colours[name], linewidth=1, alpha=0.7)
    style(axes, "accuracy")
    over = next((arm["covariance_over"] for arm in found["arms"].values()), "seeds")
    axes.set_xlabel(f"tokens a reply (ellipse: {DEVIATIONS:g} standard deviations over {over})", color=SOFT, fontsize=9)
    _legend(figure, axes)
    return figure


def _legend(figure: "Figure", axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)


def mean_curve(arm: Found, metric: str) -> list[tuple[int, float]]:
    """A training metric by step, mean over the seeds that have it at that step."""
    by_step: dict[int, list[float]] = {}
    for seed in arm["seeds"].values():
        for step, value in seed.get("curves", {}).get(metric, []):
            by_step.setdefault(step, []).append(value)
    return [(step, statistics.fmean(values)) for step, values in sorted(by_step.items())]


def curves(found: Found) -> "Figure":
    """Training by step, one line an arm, mean over seeds; arms whose reward needs no prefix have no NRP share."""
    figure = _figure(9, 8, "Training, mean over seeds")
    colours, panels = _colours(found), figure.subplots(len(CURVES), 1, sharex=True)
    for axes, (metric, label) in zip(panels, CURVES.items(), strict=True):
        for name, arm in found["arms"].items():
            if points := mean_curve(arm, metric):
                width = 2.2 if name == "decs" else 1.2
                axes.plot(*zip(*points, strict=True), color=colours[name], linewidth=width, label=name)
        style(axes, label)
    panels[-1].set_xlabel("step", color=SOFT, fontsize=9)
    _legend(figure, panels[0])
    return figure


def words(found: Found) -> "Figure | None":
    """Words of reconsideration a reply: a panel for each family, a bar for each arm, stacked by word."""
    families = sorted(found["start"]["mean"]["by_family"])
    if not families:
        return None
    arms = {"start": found["start"], **found["arms"]}
    figure = _figure(4 * len(families) + 1.5, 1.6 + 0.3 * len(arms), "Words of reconsideration a reply")
    panels = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
    for axes, family in zip(panels, families, strict=True):
        left = [0.0] * len(arms)
        for word in _words(found, family):
            values = [_seed_mean(arm, family, "words", word) or 0.0 for arm in arms.values()]
            axes.barh(list(arms), values, left=left, label=word, height=0.7)
            left = [a + b for a, b in zip(left, values, strict=True)]
        style(axes, "")
        axes.set_title(family, fontsize=9, color=SOFT)
    panels[0].invert_yaxis()
    _legend(figure, panels[0])
    return figure


def _words(found: Found, family: str) -> list[str]:
    first = next(iter(found["start"]["seeds"].values()))
    return list(first["by_family"][family].get("words", {}))


def _seed_mean(arm: Found, family: str, part: str, key: str) -> float | None:
    """The mean over seeds of one figure below a family; None where no seed has it."""
    values = [seed["by_family"][family].get(part, {}).get(key) for seed in arm["seeds"].values()]
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def levels(found: Found) -> "Figure | None":
    """NRP share by level of the problem, a panel for each family that has levels; None where none has."""
    arms, colours = {"start": found["start"], **found["arms"]}, _colours(found)
    with_levels = {family: _levels(arms, family) for family in sorted(found["start"]["mean"]["by_family"])}
    with_levels = {family: names for family, names in with_levels.items() if names}
    if not with_levels:
        return None
    figure = _figure(4 * len(with_levels) + 1.5, 4, "NRP share by level of the problem")
    panels = figure.subplots(1, len(with_levels), sharey=True, squeeze=False)[0]
    for axes, (family, names) in zip(panels, with_levels.items(), strict=True):
        for name, arm in arms.items():
            values = [_seed_mean(arm, family, "nrp_by_level", level) for level in names]
            points = [(at, value) for at, value in enumerate(values) if value is not None]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colours[name], label=name)
        style(axes, "necessary share" if axes is panels[0] else "")
        axes.set_title(family, fontsize=9, color=SOFT)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylim(0, 1.03)
    _legend(figure, panels[0])
    return figure


def _levels(arms: Mapping[str, Found], family: str) -> list[str]:
    found = {
        level
        for arm in arms.values()
        for seed in arm["seeds"].values()
        for level in seed["by_family"][family].get("nrp_by_level", {})
    }
    return sorted(found, key=lambda level: (len(level), level))
