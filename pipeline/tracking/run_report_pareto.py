"""The report's first chart: accuracy against tokens a reply, from the start of the run to its end. Pure."""

from dataclasses import dataclass

from pipeline.tracking.run_report_curves import Drawn, figure, percent, series, thinned, whole
from pipeline.tracking.run_report_data import BeforeAfter, Estimate, FigureName, RunReport
from pipeline.tracking.svg_chart import Chart, axis

TITLE = "Accuracy against tokens a reply"
HEIGHT = 330.0
WORDS = {"average": "batch of one step", "published": "published version", "start": "start", "end": "end"}


@dataclass(frozen=True)
class End:
    """The start or the end of the run."""

    name: str
    version: str
    tokens: Estimate
    accuracy: Estimate


def pareto(report: RunReport) -> Drawn:
    """Every step's average as a dot on a line, published versions marked, start and end with their intervals."""
    accuracy, tokens = series(report.history, "accuracy"), series(report.history, "tokens_mean")
    both = sorted(accuracy.keys() & tokens.keys())
    kept = sorted({*thinned(both), *(step for step in both if step in report.published)})
    steps = [(step, tokens[step], accuracy[step]) for step in kept]
    ends = _ends(report.change)
    if not steps and not ends:
        return figure("pareto", TITLE, None)
    xs = [x for _, x, _ in steps] + [x for end in ends for x in end.tokens.known]
    ys = [y for _, _, y in steps] + [y for end in ends for y in end.accuracy.known]
    chart = Chart(
        axis([0.0, *xs], whole, "tokens a reply"),
        axis(ys, percent, least=0.1, limits=(0.0, 1.0)),
        HEIGHT,
        f"{TITLE}, {len(steps)} steps; better is up and to the left",
    )
    chart.line([(x, y) for _, x, y in steps], "path")
    for step, x, y in steps:
        _draw_step(chart, step, x, y, step in report.published)
    for end in ends:
        _draw_end(chart, end)
    for step, x, y in reversed(steps):
        if step in report.published:
            chart.label(x, y, f"v{step}")
    styles = [style for style in WORDS if chart.has(style)]
    return figure("pareto", TITLE, chart, {style: WORDS[style] for style in styles})


def _draw_step(chart: Chart, step: int, tokens: float, accuracy: float, published: bool) -> None:
    chart.dot(tokens, accuracy, "published" if published else "average", 5 if published else 3)
    chart.point(tokens, accuracy, [("point", "training batch"), *_rows(str(step), tokens, accuracy)])


def _draw_end(chart: Chart, end: End) -> None:
    tokens, accuracy = end.tokens.known[0], end.accuracy.known[0]
    chart.bars(end.tokens.known, end.accuracy.known, f"bars {end.name}")
    chart.dot(tokens, accuracy, end.name, 6)
    chart.label(tokens, accuracy, end.name)
    chart.point(tokens, accuracy, [("point", end.name), *_rows(end.version, tokens, accuracy)])


def _ends(change: BeforeAfter) -> list[End]:
    tokens, accuracy = change.figure(FigureName.TOKENS), change.figure(FigureName.ACCURACY)
    ends = (
        End("start", change.versions[0], tokens.before, accuracy.before),
        End("end", change.versions[1], tokens.after, accuracy.after),
    )
    return [end for end in ends if end.tokens.known and end.accuracy.known]


def _rows(version: str, tokens: float, accuracy: float) -> list[tuple[str, str]]:
    return [("version", version), ("accuracy", f"{accuracy:.1%}"), ("tokens", f"{tokens:.1f}")]
