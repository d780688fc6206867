"""The picture of a swap measurement: latency over time, with the swaps in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs._bench_replies import Reply
from jobs._bench_swaps import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"quiet": "#8a8a8a", "swapping": "#1f6feb"}


def latency_figure(replies: Sequence[Reply], record: Record) -> "Figure":
    """Each reply a point (when it was sent, how long it took a token), each swap a band up to its confirmation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained", facecolor="white")
    axes = figure.subplots()
    start = min((reply.began for reply in replies), default=0.0)
    for phase, colour in COLOURS.items():
        mine = [reply for reply in replies if reply.phase == phase and reply.tokens]
        times = [reply.began - start for reply in mine]
        axes.scatter(times, [1000 * r.seconds / r.tokens for r in mine], s=6, color=colour, label=phase, alpha=0.6)
    _bands(axes, record, start)
    axes.set(
        xlabel="seconds", ylabel="ms a token, waiting included", yscale="log", title="Replies while weights change"
    )
    axes.legend(frameon=False, loc="upper right")
    return figure


def _bands(axes: "Axes", record: Record, start: float) -> None:
    for index, swap in enumerate(record.swaps):
        label = "swap, to the last confirmation" if index == 0 else None
        axes.axvspan(swap["began"] - start, swap["ended"] - start, color="#f2a900", alpha=0.35, label=label)
    if record.kill:
        axes.axvline(record.kill["at"] - start, color="#c00000", label="a replica is killed")
