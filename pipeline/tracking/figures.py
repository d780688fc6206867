"""Curves and a table of a run, from `Tracker.history()`. Drawn without a display; numbers as logged, no smoothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.tracking.catalogue import METRICS, SHORT, Better, lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipeline.tracking.tracker import Tracker

History = Mapping[str, Mapping[int, float]]

INK, SOFT, LINE = "#1e1f24", "#63646c", "#e6e3dc"
GREEN, BLUE, ORANGE = "#2f8f6b", "#3f74d1", "#cf7a3c"


def run_figure(history: History, title: str = "") -> "Figure":
    """Three panels over training steps: accuracy with tokens a response, necessary share of the thinking, kappa.

    `history` maps full metric names to step -> value; a metric that is missing leaves its panel empty and named.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 8), layout="constrained", facecolor="white")
    accuracy, share, kappa = figure.subplots(3, 1, sharex=True, height_ratios=(1.5, 1, 1))
    tokens = accuracy.twinx()
    lines = [
        *_draw(accuracy, history, {"accuracy": (GREEN, "accuracy"), "eval_accuracy": (GREEN, "accuracy, held out")}),
        *_draw(tokens, history, {"tokens_mean": (BLUE, "tokens"), "eval_tokens_mean": (BLUE, "tokens, held out")}),
    ]
    if lines:
        accuracy.legend(
            lines, [str(line.get_label()) for line in lines], frameon=False, ncols=2, loc="lower left", fontsize=8
        )
    _draw(share, history, {"nrp_share_tokens": (GREEN, "share"), "eval_nrp_share": (GREEN, "share, held out")})
    _draw(kappa, history, {"kappa": (ORANGE, "kappa"), "easy_share_realised": (SOFT, "easy groups, realised")})
    labels = {accuracy: "accuracy", tokens: "tokens a response", share: "necessary share", kappa: "kappa"}
    for axes, label in labels.items():
        style(axes, label, grid=axes is not tokens)
    for axes in (share, kappa):
        if len(axes.lines) > 1:
            axes.legend(frameon=False, fontsize=8)
    figure.align_ylabels([accuracy, share, kappa])
    tokens.set_ylim(bottom=0)
    accuracy.set_ylim(-0.02, 1.02)
    share.set_ylim(-0.02, 1.02)
    kappa.set_xlabel("step", color=SOFT, fontsize=9)
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure


def _draw(axes: "Axes", history: History, wanted: Mapping[str, tuple[str, str]]) -> list:
    """Training as a line, held-out points as dots on a dashed one."""
    lines = []
    for short, (colour, label) in wanted.items():
        points = sorted(history.get(SHORT[short].name, {}).items())
        if not points:
            continue
        held_out = short.startswith("eval_")
        style = {"linestyle": "--", "marker": "o", "markersize": 4} if held_out else {"linewidth": 1.8}
        if len(points) == 1:
            style = {**style, "marker": "o"}
        lines += axes.plot(*zip(*points, strict=True), color=colour, label=label, **style)
    return lines


def style(axes: "Axes", label: str, grid: bool = True) -> None:
    """The look of all panels; one without lines or bars says so."""
    axes.set_ylabel(label, color=SOFT, fontsize=9)
    axes.tick_params(colors=SOFT, labelsize=8, length=0)
    if grid:
        axes.grid(True, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    if not axes.has_data() and grid:
        axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", color=SOFT, fontsize=9)


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a figure as .png or .svg (by the name's ending). The same data gives the same bytes."""
    import matplotlib

    path = Path(path)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "figure", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=160, metadata=metadata)
    return path


def summary_rows(history: History, names: Sequence[str] | None = None) -> list[dict[str, object]]:
    """One row a metric: first, last and best value with their steps, and the change; `names` full or short, None for
    all that were logged, in the catalogue's order. Metrics without a good direction have no best."""
    order = {name: position for position, name in enumerate(METRICS)}
    wanted = sorted(history, key=lambda name: (order[lookup(name).name], name)) if names is None else names
    return [_row(name, history[name]) for raw in wanted if history.get(name := _full(raw))]


def _full(name: str) -> str:
    return SHORT[name].name if name in SHORT else name


def _row(name: str, values: Mapping[int, float]) -> dict[str, object]:
    metric, steps = lookup(name), sorted(values)
    first, last = values[steps[0]], values[steps[-1]]
    best: int | None = None
    if metric.better is not Better.NONE:
        sign = 1 if metric.better is Better.UP else -1
        best = max(steps, key=lambda step: (sign * values[step], -step))
    return {
        "metric": name,
        "unit": metric.unit,
        "better": metric.better.value,
        "first": first,
        "last": last,
        "change": last - first,
        "best": None if best is None else values[best],
        "best_step": best,
        "steps": len(steps),
        "last_step": steps[-1],
    }


def log_curves(tracker: "Tracker", title: str = "") -> bool:
    """Keep the curves (PNG and SVG) and the summary table of a run as its artifacts; False (counted) when the store did
    not take them all."""
    import tempfile

    history = tracker.history()
    figure = run_figure(history, title)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("curves.png", "curves.svg"):
            save_figure(figure, Path(folder) / name)
        kept = tracker.log_folder(folder, "figures")
    return tracker.log_table(summary_rows(history), "tables/summary.json") and kept
