"""What the colours of a page of traces mean, and the controls that filter it. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.tracking.html_page import esc
from pipeline.tracking.trace_cards import OPEN_ALL_UP_TO, verdict_of
from pipeline.tracking.trace_view import Part, TraceView

_LEGEND = {
    Part.NECESSARY: "needed to reach the answer",
    Part.REDUNDANT: "thinking after the answer",
    Part.UNMARKED: "no right answer found in the thinking",
    Part.ANSWER: "the reply",
}


def legend(traces: Iterable[TraceView]) -> str:
    """What the colours mean, for the parts that occur."""
    present = {token.part for trace in traces for token in trace.tokens}
    items = "".join(
        f'<li class="{part}"><span class=swatch></span><span><b>{part.capitalize()}</b> {text}</span></li>'
        for part, text in _LEGEND.items()
        if part in present
    )
    return f"<ul class=legend>{items}</ul>" if items else ""


def controls(traces: Sequence[TraceView]) -> str:
    """Filters by verdict, source and version, and what the tokens are coloured by."""
    verdicts = Counter(map(verdict_of, traces))
    chips = [_chip("data-show", "", "All", True, len(traces))]
    found = [verdict for verdict in ("right", "wrong", "unknown") if verdicts[verdict]]
    chips += [_chip("data-show", verdict, verdict.capitalize(), False, verdicts[verdict]) for verdict in found]
    kinds = ["part", *(kind for kind in ("reward", "advantage") if _has(traces, kind))]
    tints = [_chip("data-tint-by", kind, kind.capitalize(), kind == "part") for kind in kinds]
    tint = (
        f'<div class=field>Colour by<span class=chips role=group aria-label="Colour by">{"".join(tints)}</span></div>'
    )
    return (
        f'<div class=controls><div class=chips role=group aria-label="Verdict">{"".join(chips)}</div>'
        f"{_picker('source', {trace.source for trace in traces})}"
        f"{_picker('version', {trace.version for trace in traces})}"
        f"{tint if len(kinds) > 1 else ''}"
        f"<button id=open-all>{'Close' if len(traces) <= OPEN_ALL_UP_TO else 'Open'} all</button>"
        f"<span class=shown role=status>{len(traces)} of {len(traces)} traces</span></div>"
    )


def _picker(name: str, values: set[str]) -> str:
    """A choice among the values of a trace's field; none where there is nothing to choose."""
    if len(values) < 2:
        return ""
    ordered = sorted(values, key=lambda value: (len(value), value) if value[:1].isdecimal() else (0, value))
    options = "".join(f'<option value="{esc(value)}">{esc(value)}</option>' for value in ordered)
    return (
        f"<label class=field>{name.capitalize()} "
        f'<select id={name} data-filter={name}><option value="">All</option>{options}</select></label>'
    )


def _has(traces: Iterable[TraceView], name: str) -> bool:
    return any(getattr(token, name) is not None for trace in traces for token in trace.tokens)


def _chip(attribute: str, value: str, label: str, pressed: bool, count: int | None = None) -> str:
    number = "" if count is None else f"<span class=count>{count}</span>"
    return f'<button {attribute}="{value}" aria-pressed={str(pressed).lower()}>{label}{number}</button>'
