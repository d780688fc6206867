"""The report's learning curves, and the same numbers as a table. Pure: a run's history to markup and data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.tracking.catalogue import SHORT
from pipeline.tracking.html_page import esc
from pipeline.tracking.run_report_data import NOT_MEASURED, History
from pipeline.tracking.svg_chart import Chart, Form, axis

MOST_POINTS = 400  # of a longer run only every so many-th step is drawn
HEIGHT = 210.0
FEW = 3
STEPS = "steps trained"


@dataclass(frozen=True)
class Drawn:
    """A chart as markup, and under its name what a pointer finds in it."""

    markup: str
    found: Mapping[str, object]


@dataclass(frozen=True)
class Panel:
    """One chart: metrics by short name as (metric, style, words), all in one unit and within `limits`."""

    name: str
    title: str
    lines: tuple[tuple[str, str, str], ...]
    form: Form
    detail: str  # how a single value is written
    least: float  # the narrowest range shown, or noise would fill the chart
    limits: tuple[float, float]


def percent(value: float) -> str:
    """A share on an axis."""
    return f"{100 * value:.0f} %"


def whole(value: float) -> str:
    """A count on an axis."""
    return f"{value:.0f}"


def _shares(name: str, title: str, *lines: tuple[str, str, str]) -> Panel:
    return Panel(name, title, lines, percent, ".1%", 0.1, (0.0, 1.0))


BATCH, HELD_OUT = ("batch", "training batch"), ("held-out", "held out")
PANELS = (
    _shares("accuracy", "Accuracy", ("accuracy", *BATCH), ("eval_accuracy", *HELD_OUT)),
    Panel(
        "tokens",
        "Tokens a reply",
        (("tokens_mean", *BATCH), ("eval_tokens_mean", *HELD_OUT)),
        whole,
        ".1f",
        10,
        (0.0, float("inf")),
    ),
    _shares("nrp", "Necessary share of the thinking", ("nrp_share_tokens", *BATCH), ("eval_nrp_share", *HELD_OUT)),
    _shares(
        "curriculum",
        "Curriculum: share of easy groups",
        ("kappa", "asked", "asked for (kappa)"),
        ("easy_share_realised", "batch", "in the batch"),
        ("easy_share_available", "available", "among those sampled"),
    ),
)


def series(history: History, short: str) -> Mapping[int, float]:
    """Step -> value of a metric by its short name; empty where it was not logged."""
    return history.get(SHORT[short].name, {})


def thinned(steps: Sequence[int]) -> list[int]:
    """At most MOST_POINTS or one more of the steps, evenly spread, with the last one."""
    stride = max(1, -(-len(steps) // MOST_POINTS))
    return sorted({*steps[::stride], *steps[-1:]})


def figure(name: str, title: str, chart: Chart | None, styles: Mapping[str, str] | None = None) -> Drawn:
    """A chart with its title and the words for its styles; without one, that nothing was measured."""
    if chart is None:
        return Drawn(f"<figure><figcaption><b>{title}</b></figcaption><p class=none>{NOT_MEASURED}</p></figure>", {})
    words = "".join(f'<span class=key><i class="{style}"></i>{text}</span>' for style, text in (styles or {}).items())
    markup = f"<figure><figcaption><b>{title}</b>{words}</figcaption>{chart.markup(name)}</figure>"
    return Drawn(markup, {name: chart.points})


def curves(history: History) -> list[Drawn]:
    """A chart for each panel, in order."""
    return [_curve(panel, history) for panel in PANELS]


def _curve(panel: Panel, history: History) -> Drawn:
    lines = [(series(history, name), style, words) for name, style, words in panel.lines if series(history, name)]
    if not lines:
        return figure(panel.name, panel.title, None)
    steps = thinned(sorted({step for values, _, _ in lines for step in values}))
    every = [value for values, _, _ in lines for value in values.values()]
    chart = Chart(
        axis(steps, whole, STEPS, whole=True),
        axis(every, panel.form, least=panel.least, limits=panel.limits),
        HEIGHT,
        f"{panel.title}, over {steps[-1] - steps[0] + 1} steps; arrow keys move along",
    )
    for values, style, _ in lines:
        points = [(step, values[step]) for step in steps if step in values]
        if len(points) < FEW:  # a line between two far points would pretend to know what lies between
            for step, value in points:
                chart.dot(step, value, style, 4)
        else:
            chart.line(points, style)
    for step in steps:
        found = [(words, values[step]) for values, _, words in lines if step in values]
        found += _by_source(panel, history, step)
        chart.point(step, None, [(STEPS, str(step)), *((words, format(v, panel.detail)) for words, v in found)])
    return figure(panel.name, panel.title, chart, {style: words for _, style, words in lines})


def _by_source(panel: Panel, history: History, step: int) -> list[tuple[str, float]]:
    """The first metric of the panel for each source alone."""
    group, _, leaf = SHORT[panel.lines[0][0]].name.partition("/")
    pattern = re.compile(rf"{group}\.(.+)/{leaf}")
    found = [(match[1], values) for name, values in sorted(history.items()) if (match := pattern.fullmatch(name))]
    return [(source, values[step]) for source, values in found if step in values]


def numbers_table(history: History) -> str:
    """What the curves show, as a table: it needs no script and no eyes for colour."""
    columns = [(panel, name, words) for panel in PANELS for name, _, words in panel.lines if series(history, name)]
    steps = sorted({step for _, name, _ in columns for step in series(history, name)})
    if not steps:
        return ""
    kept = thinned(steps)
    head = "".join(f"<th scope=col>{panel.title}<small>{words}</small></th>" for panel, _, words in columns)
    rows = "".join(
        f"<tr><th scope=row>{step}</th>"
        + "".join(f"<td>{_written(series(history, name).get(step), panel)}</td>" for panel, name, _ in columns)
        + "</tr>"
        for step in kept
    )
    every = "" if len(kept) == len(steps) else f" ({len(kept)} of {len(steps)} steps)"
    return (
        f"<details><summary>All numbers by step{every}</summary><div class=scroll tabindex=0 role=region "
        f'aria-label="Numbers by step"><table><thead><tr><th scope=col>{STEPS}</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _written(value: float | None, panel: Panel) -> str:
    return "–" if value is None else esc(format(value, panel.detail))
