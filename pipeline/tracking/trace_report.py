"""Traces as a page to read: which tokens were needed, which were not, and what each was worth. Pure: data to HTML.

The page is one file that asks for nothing outside itself. What a model wrote is untrusted: all of it is escaped, and a
content policy allows no script but the page's own (by its digest).
"""

import base64
import hashlib
import html
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from pipeline.tracking.trace_view import Part, TokenView, TraceView

ASSETS = Path(__file__).with_name("assets")
OPEN_ALL_UP_TO = 6  # with more traces, only the first of each problem is open

_LEGEND = {
    Part.NECESSARY: "needed to reach the answer",
    Part.REDUNDANT: "thinking after the answer",
    Part.UNMARKED: "no right answer found in the thinking",
    Part.ANSWER: "the reply",
}


def esc(text: object) -> str:
    """Text that is safe as content and as an attribute. Signs a page cannot hold (NUL, lone surrogates) become U+FFFD,
    and carriage returns, which HTML would change, stay visible."""
    plain = "".join("\ufffd" if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF else c for c in str(text))
    return html.escape(plain, quote=True).replace("\r", "␍")


def verdict_of(trace: TraceView) -> str:
    """The verdict as this page names it; anything unforeseen is unknown."""
    name = str(trace.verdict).lower()
    return name if name in ("right", "wrong", "unknown") else "unknown"


def trace_report_html(traces: Sequence[TraceView], title: str = "Example traces", lead: str | None = None) -> str:
    """A page of example traces, grouped by `group` (else by problem), with filters by verdict and source."""
    text = lead or "Every token a model wrote, by what it was for. Point at, tap or focus a token for its reward."
    body = [f"<h1>{esc(title)}</h1><p class=lead>{esc(text)}</p>", _legend(traces), _controls(traces)]
    ordered = sorted(enumerate(traces), key=lambda item: (_first_of_group(traces, item[1]), item[0]))
    for _, members in groupby((trace for _, trace in ordered), key=_group_key):
        body.append(_group(list(members), open_all=len(traces) <= OPEN_ALL_UP_TO))
    body.append("<p class=empty hidden>No trace fits these filters.</p>" if traces else "<p class=empty>No traces.</p>")
    return _page(title, "<main>" + "".join(body) + "</main>")


def comparison_html(before: TraceView, after: TraceView, title: str = "Before and after") -> str:
    """A page with two traces of one problem side by side."""
    longest = max(len(before.tokens), len(after.tokens), 1)
    sides = "".join(
        f'<article class="trace" data-verdict="{verdict_of(trace)}"><div class=head>'
        f"{_summary(trace, trace.label or label, longest)}</div>{_text(trace)}</article>"
        for trace, label in ((before, "Before"), (after, "After"))
    )
    body = (
        f"<h1>{esc(title)}</h1><p class=problem>{esc(before.problem)}</p>{_facts(before)}"
        f"<p class=saved>{_saving(len(before.tokens), len(after.tokens))}</p>"
        f"{_legend((before, after))}<div class=pair>{sides}</div>"
    )
    return _page(title, f'<main class="wide">{body}</main>')


def _saving(before: int, after: int) -> str:
    change = f"{(after - before) / before:+.0%}".replace("-", "−") if before else "–"
    return f"<b>{change}</b>{before} → {after} tokens"


def _group_key(trace: TraceView) -> tuple[str, str]:
    return (trace.group, trace.problem)


def _first_of_group(traces: Sequence[TraceView], trace: TraceView) -> int:
    return next(i for i, other in enumerate(traces) if _group_key(other) == _group_key(trace))


def _group(traces: Sequence[TraceView], open_all: bool) -> str:
    longest = max(len(trace.tokens) for trace in traces)
    cards = "".join(
        f'<details class="trace" data-verdict="{verdict_of(trace)}" data-source="{esc(trace.source)}"'
        f"{' open' if open_all or index == 0 else ''}><summary>"
        f"{_summary(trace, trace.label, longest, more=True)}</summary>{_text(trace)}</details>"
        for index, trace in enumerate(traces)
    )
    head = f"<h2 class=problem>{esc(traces[0].problem)}</h2>{_facts(traces[0], traces)}"
    return f"<section class=group>{head}{cards}</section>"


def _facts(trace: TraceView, group: Sequence[TraceView] = ()) -> str:
    facts = [f"<span>Gold answer <b class=mono>{esc(trace.gold)}</b></span>"]
    facts.append(f"<span>Source <b>{esc(trace.source)}</b></span>")
    if len(group) > 1:
        right = sum(verdict_of(member) == "right" for member in group)
        facts.append(f"<span><b>{right} of {len(group)}</b> right</span>")
    return f"<div class=facts>{''.join(facts)}</div>"


def _summary(trace: TraceView, label: str, longest: int, more: bool = False) -> str:
    verdict, share = verdict_of(trace), trace.nrp_share
    cells = [f"<span class=label>{esc(label)}</span>"] if label else []
    cells.append(f'<span class="verdict {verdict}">{verdict.capitalize()}</span>')
    cells.append(f"<span><b>{len(trace.tokens)}</b> tokens</span>")
    cells.append(f"<span>needed <b>{'–' if share is None else f'{share:.0%}'}</b></span>")
    cells.append(f"<span>version <b>{esc(trace.version)}</b></span>")
    if trace.stop:
        cells.append(f"<span>stop <b>{esc(trace.stop)}</b></span>")
    if more:
        cells.append("<span class=more></span>")
    return f"<div class=row>{''.join(cells)}</div>{_bar(trace, longest)}"


def _bar(trace: TraceView, longest: int) -> str:
    """Lengths of the parts, on the scale of the longest trace of the problem."""
    pieces = "".join(
        f'<i class="{part}" style="width:{100 * count / max(longest, 1):.2f}%"></i>'
        for part in Part
        if (count := trace.count(part))
    )
    return f'<div class=bar role=img aria-label="{_spoken(trace)}">{pieces}</div>'


def _spoken(trace: TraceView) -> str:
    return ", ".join(f"{count} {part} tokens" for part in Part if (count := trace.count(part)))


def _text(trace: TraceView) -> str:
    pieces: list[str] = []
    runs = trace.runs()
    for (part, start, tokens), following in zip(runs, [*(run[0] for run in runs[1:]), None], strict=True):
        spans = [_token(start + offset, token) for offset, token in enumerate(tokens)]
        if part is Part.NECESSARY and following is Part.REDUNDANT:
            last = max((i for i, token in enumerate(tokens) if token.text.strip()), default=len(tokens) - 1)
            spans.insert(last + 1, f"<span class=reached>answer reached, token {start + len(tokens)}</span>")
        pieces.append(f'<span class="run {part}" data-part="{part}">{"".join(spans)}</span>')
    return f'<div class=text dir=auto role=group aria-label="Tokens; move with the arrow keys">{"".join(pieces)}</div>'


def _token(index: int, token: TokenView) -> str:
    values = "".join(
        f' data-{name}="{value:.4g}"'
        for name, value in (("reward", token.reward), ("advantage", token.advantage))
        if value is not None
    )
    return f"<span class=t tabindex={0 if index == 0 else -1} data-i={index}{values}>{esc(token.text)}</span>"


def _legend(traces: Iterable[TraceView]) -> str:
    present = {token.part for trace in traces for token in trace.tokens}
    items = "".join(
        f'<li class="{part}"><span class=swatch></span><span><b>{part.capitalize()}</b> {text}</span></li>'
        for part, text in _LEGEND.items()
        if part in present
    )
    return f"<ul class=legend>{items}</ul>" if items else ""


def _controls(traces: Sequence[TraceView]) -> str:
    verdicts = Counter(map(verdict_of, traces))
    chips = [_chip("data-show", "", "All", True, len(traces))]
    found = [verdict for verdict in ("right", "wrong", "unknown") if verdicts[verdict]]
    chips += [_chip("data-show", verdict, verdict.capitalize(), False, verdicts[verdict]) for verdict in found]
    kinds = ["part", *(kind for kind in ("reward", "advantage") if _has(traces, kind))]
    tints = [_chip("data-tint-by", kind, kind.capitalize(), kind == "part") for kind in kinds]
    sources = sorted({trace.source for trace in traces})
    options = "".join(f'<option value="{esc(source)}">{esc(source)}</option>' for source in sources)
    picker = f'<label class=field>Source <select id=source><option value="">All</option>{options}</select></label>'
    tint = (
        f'<div class=field>Colour by<span class=chips role=group aria-label="Colour by">{"".join(tints)}</span></div>'
    )
    return (
        f'<div class=controls><div class=chips role=group aria-label="Verdict">{"".join(chips)}</div>'
        f"{picker if len(sources) > 1 else ''}"
        f"{tint if len(kinds) > 1 else ''}"
        f"<button id=open-all>{'Close' if len(traces) <= OPEN_ALL_UP_TO else 'Open'} all</button>"
        f"<span class=shown role=status>{len(traces)} of {len(traces)} traces</span></div>"
    )


def _has(traces: Iterable[TraceView], name: str) -> bool:
    return any(getattr(token, name) is not None for trace in traces for token in trace.tokens)


def _chip(attribute: str, value: str, label: str, pressed: bool, count: int | None = None) -> str:
    number = "" if count is None else f"<span class=count>{count}</span>"
    return f'<button {attribute}="{value}" aria-pressed={str(pressed).lower()}>{label}{number}</button>'


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _page(title: str, body: str) -> str:
    script, style = _asset("page.js"), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = ("default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", f"script-src 'sha256-{digest}'")
    policy = "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))
    return (
        '<!doctype html><html lang=en><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{esc(title)}</title><style>{style}</style></head>"
        f'<body data-tint="part">{body}<div class=tip id=tip role=tooltip hidden></div>'
        f"<script>{script}</script></body></html>"
    )
