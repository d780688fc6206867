"""One run as one page: what changed and was it worth it, how it came about, and what the replies look like. Pure.

The page is a single file. Verdict, charts and traces are there without a script; the script adds filters and details
under the pointer.
"""

from string import Template

from pipeline.tracking.html_page import asset, esc, island, page
from pipeline.tracking.run_report_curves import curves, numbers_table
from pipeline.tracking.run_report_data import NOT_MEASURED, RunReport
from pipeline.tracking.run_report_pareto import pareto
from pipeline.tracking.run_report_verdict import figures_table, sentence
from pipeline.tracking.trace_cards import grouped_cards, pair_cards, problem
from pipeline.tracking.trace_filters import controls, legend
from pipeline.tracking.trace_report import saving

MOST_TRACES = 60
MOST_PAIRS = 4


def run_report_html(report: RunReport) -> str:
    """The page of a run. Of more than MOST_TRACES traces or MOST_PAIRS pairs it shows the first, and says so."""
    plan, lines = pareto(report), curves(report.history)
    body = Template(asset("run_report.html")).substitute(
        name=esc(report.name),
        facts="".join(f"<span>{esc(label)} <b>{esc(value)}</b></span>" for label, value in report.facts),
        sentence=esc(sentence(report.change)),
        figures=figures_table(report.change),
        where=esc(report.change.where),
        pareto=plan.markup,
        curves="".join(line.markup for line in lines),
        numbers=numbers_table(report.history),
        traces=_traces(report),
        pairs=_pairs(report),
    )
    found = {name: points for drawn in (plan, *lines) for name, points in drawn.found.items()}
    return page(
        f"{report.name}: report",
        body,
        styles=("page.css", "run_report.css"),
        scripts=("page.js", "run_report.js"),
        data=island("charts", found),
    )


def _traces(report: RunReport) -> str:
    traces = report.traces[:MOST_TRACES]
    if not traces:
        return _note(report.traces_from) + f"<p class=none>{NOT_MEASURED}</p>"
    return (
        f"{_note(report.traces_from, len(traces), len(report.traces), 'traces')}{legend(traces)}{controls(traces)}"
        f"{grouped_cards(traces, level=3, brief=True)}<p class=empty hidden>No trace fits these filters.</p>"
    )


def _pairs(report: RunReport) -> str:
    pairs = report.pairs[:MOST_PAIRS]
    if not pairs:
        return _note(report.pairs_from) + f"<p class=none>{NOT_MEASURED}</p>"
    shown = "".join(
        f"<article>{problem(before, 3)}<p class=saved>{saving(before, after)}</p>{pair_cards(before, after)}</article>"
        for before, after in pairs
    )
    return _note(report.pairs_from, len(pairs), len(report.pairs), "problems") + shown


def _note(text: str, shown: int = 0, there: int = 0, what: str = "") -> str:
    more = f" Shown here: {shown} of {there} {what}." if shown < there else ""
    return f"<p class=note>{esc(text)}{more}</p>"
