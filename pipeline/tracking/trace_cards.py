"""Traces as markup: a card each, with its tokens by what they were for. Pure."""

from collections.abc import Sequence
from itertools import groupby

from pipeline.tracking.html_page import esc
from pipeline.tracking.trace_view import Part, TokenView, TraceView

OPEN_ALL_UP_TO = 6  # of more traces only some are open
MOST_TOKENS = 1200  # of a longer trace the middle is left out, and the page says so
MOST_PROMPT = 4000  # characters


def verdict_of(trace: TraceView) -> str:
    """The verdict as a page names it; anything unforeseen is unknown."""
    name = str(trace.verdict).lower()
    return name if name in ("right", "wrong", "unknown") else "unknown"


def grouped_cards(traces: Sequence[TraceView], level: int = 2, brief: bool = False) -> str:
    """One section for each `group` (else problem), in the order of first appearance; `level` is that of the heading.

    Of many traces the first of each problem is open; with `brief` the very first one alone.
    """
    first: dict[tuple[str, str], int] = {}
    for index, trace in enumerate(traces):
        first.setdefault(_group_key(trace), index)
    ordered = sorted(traces, key=lambda trace: first[_group_key(trace)])
    groups = [list(members) for _, members in groupby(ordered, key=_group_key)]
    few = len(traces) <= OPEN_ALL_UP_TO
    opened = [len(group) if few else 0 if brief and index else 1 for index, group in enumerate(groups)]
    return "".join(_group(group, count, level) for group, count in zip(groups, opened, strict=True))


def pair_cards(before: TraceView, after: TraceView) -> str:
    """Two traces of one problem side by side, without their problem."""
    longest = max(len(before.tokens), len(after.tokens), 1)
    sides = "".join(
        f'<article class="trace" data-verdict="{verdict_of(trace)}"><div class=head>'
        f"{_summary(trace, trace.label or label, longest)}</div>{_text(trace)}</article>"
        for trace, label in ((before, "Before"), (after, "After"))
    )
    return f"<div class=pair>{sides}</div>"


def problem(trace: TraceView, level: int, group: Sequence[TraceView] = ()) -> str:
    """The problem as a heading, with its gold answer and source."""
    text = trace.problem
    if len(text) > MOST_PROMPT:
        text = f"{text[:MOST_PROMPT]} … ({len(text) - MOST_PROMPT} more characters)"
    return f"<h{level} class=problem>{esc(text)}</h{level}>{_facts(trace, group)}"


def _group_key(trace: TraceView) -> tuple[str, str]:
    return (trace.group, trace.problem)


def _group(traces: Sequence[TraceView], opened: int, level: int) -> str:
    longest = max(len(trace.tokens) for trace in traces)
    cards = "".join(
        f'<details class="trace" data-verdict="{verdict_of(trace)}" data-source="{esc(trace.source)}" '
        f'data-version="{esc(trace.version)}"{" open" if index < opened else ""}>'
        f"<summary>{_summary(trace, trace.label, longest, more=True)}</summary>{_text(trace)}</details>"
        for index, trace in enumerate(traces)
    )
    return f"<section class=group>{problem(traces[0], level, traces)}{cards}</section>"


def _facts(trace: TraceView, group: Sequence[TraceView]) -> str:
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


# --- tokens ---


def _text(trace: TraceView) -> str:
    runs, total = trace.runs(), len(trace.tokens)
    hidden = range(MOST_TOKENS // 2, max(MOST_TOKENS // 2, total - MOST_TOKENS // 2))
    pieces: list[str] = []
    for (part, start, tokens), following in zip(runs, [*(run[0] for run in runs[1:]), None], strict=True):
        reached = part is Part.NECESSARY and following is Part.REDUNDANT
        pieces.append(f'<span class="run {part}" data-part="{part}">{_run(start, tokens, reached, hidden)}</span>')
    return f'<div class=text dir=auto role=group aria-label="Tokens; move with the arrow keys">{"".join(pieces)}</div>'


def _run(start: int, tokens: Sequence[TokenView], reached: bool, hidden: range) -> str:
    """The tokens of one part, those in `hidden` as one mark, and where the answer is `reached`."""
    last = max((i for i, token in enumerate(tokens) if token.text.strip()), default=len(tokens) - 1)
    pieces: list[str] = []
    for offset, token in enumerate(tokens):
        index = start + offset
        if index not in hidden:
            pieces.append(_token(index, token))
        elif index == hidden.start or offset == 0:
            count = min(hidden.stop, start + len(tokens)) - index
            pieces.append(f"<span class=cut>{count} tokens not shown</span>")
        if reached and offset == last:
            pieces.append(f"<span class=reached>answer reached, token {start + len(tokens)}</span>")
    return "".join(pieces)


def _token(index: int, token: TokenView) -> str:
    values = "".join(
        f' data-{name}="{value:.4g}"'
        for name, value in (("reward", token.reward), ("advantage", token.advantage))
        if value is not None
    )
    return f"<span class=t tabindex={0 if index == 0 else -1} data-i={index}{values}>{esc(token.text)}</span>"
