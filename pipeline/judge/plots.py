"""Figures of a judge's findings: calibration, and the errors at each threshold. Drawn without a display."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE = "#1e1f24", "#63646c", "#e6e3dc"
COLOURS = ("#2f8f6b", "#3f74d1", "#cf7a3c", "#8a5aa8")


def calibration_figure(families: Mapping[str, Sequence[Mapping[str, float]]]) -> "Figure":
    """What the judge said against what was found, a line for each family (rows of `findings.calibration`)."""
    figure, axes = _figure("probability of yes that the judge gives", "share labelled yes")
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle="--", label="calibrated")
    for colour, (family, rows) in zip(COLOURS, families.items(), strict=False):
        total = sum(row["segments"] for row in rows) or 1
        sizes = [20 + 300 * row["segments"] / total for row in rows]
        said, found = [row["said"] for row in rows], [row["found"] for row in rows]
        axes.plot(said, found, color=colour, linewidth=1.2, label=family)
        axes.scatter(said, found, s=sizes, color=colour, alpha=0.5)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.legend(frameon=False, fontsize=8)
    return figure


def threshold_figure(families: Mapping[str, Sequence[Mapping[str, float | None]]], threshold: float) -> "Figure":
    """False-yes (solid) and missed-yes rate (dashed) over the threshold (rows of `findings.sweep`)."""
    figure, axes = _figure("threshold", "share")
    for colour, (family, rows) in zip(COLOURS, families.items(), strict=False):
        for name, style in (("false_yes_rate", "-"), ("missed_yes_rate", "--")):
            points = [(row["threshold"], row[name]) for row in rows if row[name] is not None]
            if points:
                label = f"{family}, {name.removesuffix('_rate').replace('_', ' ')}"
                axes.plot(*zip(*points, strict=True), style, color=colour, linewidth=1.4, label=label)
    axes.axvline(threshold, color=INK, linewidth=0.8)
    axes.set_ylim(bottom=-0.001)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _figure(across: str, up: str) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.5), layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.set_xlabel(across, color=SOFT, fontsize=9)
    axes.set_ylabel(up, color=SOFT, fontsize=9)
    axes.tick_params(colors=SOFT, labelsize=8, length=0)
    axes.grid(True, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure, axes
