"""The picture of the table of serving levers: tokens a second, and tokens a right answer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR = "#1f6feb"
PANELS = {"output_tokens_per_s": "tokens a second", "tokens_per_correct": "tokens a right answer"}


def levers_figure(entries: Sequence[Mapping[str, Any]]) -> "Figure":
    """A bar for each row that ran, with its 95 % interval where it has one."""
    from matplotlib.figure import Figure

    ran = [entry for entry in entries if entry["ran"]]
    figure = Figure(figsize=(9, 1.2 + 0.4 * len(ran)), layout="constrained", facecolor="white")
    for axes, (name, label) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        _bars(axes, ran, name)
        axes.set(xlabel=label)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _bars(axes: "Axes", ran: Sequence[Mapping[str, Any]], name: str) -> None:
    labels = [f"{entry['row']}  {entry['title']}" for entry in ran]
    axes.barh(labels, [entry[name] or 0 for entry in ran], color=COLOUR, height=0.6)
    for label, entry in zip(labels, ran, strict=True):
        if entry[name] is not None and (interval := entry[f"{name}_interval"]):
            axes.plot(interval, [label, label], color="black", linewidth=1.5)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
