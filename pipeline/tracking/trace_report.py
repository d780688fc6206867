"""Traces as a page to read: which tokens were needed, which were not, and what each was worth. Pure: data to HTML."""

from collections.abc import Sequence

from pipeline.tracking.html_page import esc, page
from pipeline.tracking.trace_cards import grouped_cards, pair_cards, problem
from pipeline.tracking.trace_filters import controls, legend
from pipeline.tracking.trace_view import TraceView


def trace_report_html(traces: Sequence[TraceView], title: str = "Example traces", lead: str | None = None) -> str:
    """A page of example traces, grouped by `group` (else by problem), with filters by verdict, source and version."""
    text = lead or "Every token a model wrote, by what it was for. Point at, tap or focus a token for its reward."
    body = [f"<h1>{esc(title)}</h1><p class=lead>{esc(text)}</p>", legend(traces), controls(traces)]
    body.append(grouped_cards(traces))
    body.append("<p class=empty hidden>No trace fits these filters.</p>" if traces else "<p class=empty>No traces.</p>")
    return page(title, "<main>" + "".join(body) + "</main>")


def comparison_html(before: TraceView, after: TraceView, title: str = "Before and after") -> str:
    """A page with two traces of one problem side by side."""
    body = (
        f"<h1>{esc(title)}</h1>{problem(before, 2)}<p class=saved>{saving(before, after)}</p>"
        f"{legend((before, after))}{pair_cards(before, after)}"
    )
    return page(title, f'<main class="wide">{body}</main>')


def saving(before: TraceView, after: TraceView) -> str:
    """How many tokens the second trace takes less, as markup."""
    old, new = len(before.tokens), len(after.tokens)
    change = f"{(new - old) / old:+.0%}".replace("-", "−") if old else "–"
    return f"<b>{change}</b>{old} → {new} tokens"
