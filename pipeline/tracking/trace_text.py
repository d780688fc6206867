"""Two traces of one problem, for a terminal. Pure, save for looking at whether the terminal takes colour."""

import os
import sys
import unicodedata
from typing import TextIO

from pipeline.tracking.trace_view import Part, TraceView

DIM, BOLD, GREEN, BLUE, RESET = "\x1b[2m", "\x1b[1m", "\x1b[32m", "\x1b[34m", "\x1b[0m"
_STYLE = {Part.NECESSARY: GREEN, Part.REDUNDANT: DIM, Part.ANSWER: BLUE, Part.UNMARKED: ""}


def takes_colour(stream: TextIO | None = None) -> bool:
    """True for a terminal, unless NO_COLOR is set or TERM is dumb."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def harmless(text: str) -> str:
    """`text` without signs that steer a terminal (escapes, carriage returns, text direction); each becomes U+FFFD."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "\ufffd" for c in text)


def comparison_text(before: TraceView, after: TraceView, colour: bool | None = None) -> str:
    """Problem, then each trace whole. With `colour` (None: if standard output takes it) the redundant part is dim;
    without, a line says where it begins."""
    painted = takes_colour() if colour is None else colour
    old, new = len(before.tokens), len(after.tokens)
    saved = f" ({(new - old) / old:+.0%})" if old else ""
    head = [f"Problem  {harmless(before.problem)}", f"Gold     {harmless(before.gold)}"]
    head.append(f"Tokens   {old} -> {new}{saved}")
    parts = [_trace(before, before.label or "Before", painted), _trace(after, after.label or "After", painted)]
    return "\n".join(head) + "\n\n" + "\n\n".join(parts) + "\n"


def _trace(trace: TraceView, label: str, painted: bool) -> str:
    share = "-" if trace.nrp_share is None else f"{trace.nrp_share:.0%}"
    verdict = harmless(str(trace.verdict)).lower()
    facts = f"{verdict}, {len(trace.tokens)} tokens, needed {share}, version {trace.version}"
    title = f"{BOLD}{harmless(label)}{RESET}" if painted else harmless(label)
    pieces = [f"{title}  {facts}\n"]
    for part, _, tokens in trace.runs():
        text = harmless("".join(token.text for token in tokens))
        if painted:
            pieces.append(f"{_STYLE[part]}{text}{RESET}" if _STYLE[part] else text)
        elif part is Part.REDUNDANT:
            pieces.append(f"\n--- answer reached; from here to the next line it is redundant ---\n{text}\n---\n")
        else:
            pieces.append(text)
    return "".join(pieces).rstrip("\n")
