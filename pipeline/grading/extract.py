"""Which span of a text is its answer. The one extractor: rewards, judge and evaluation all read answers here.

1. The last complete box (`\\boxed{..}` or `\\fbox{..}`) wins. Empty boxes do not count, a box inside a box is read
   through, and a box that is never closed gives no answer.
2. Without a box, the last sentence that states an answer: "the answer is X", "Answer: X", a "Final Answer" heading,
   a last line in bold, and the same phrase in other languages (statements.py). Hedged ones do not count.
3. Else a text whose last line is an assignment (`x = -7`), or which is one bare expression as a whole.
"""

import re
from dataclasses import dataclass

from pipeline.grading.normalise import plain_signs
from pipeline.grading.statements import hedged, sentence_statements

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
EMPTY = re.compile(r"^(?:\s|\\[,;:! ]|~|\$|\{\}|\\(?:quad|qquad))*$")
ASSIGNMENT_LINE = re.compile(r"^[\s$*]*(?:\\[(\[])?\s*[A-Za-z](?:_\{?\w+\}?)?\s*=[^=<>]+$")
PROSE = re.compile(r"(?<![\\A-Za-z])(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi|inf)(?![A-Za-z]))[^\W\d_]{2,}")
BARE_LIMIT = 300  # characters; longer lines are never one bare expression


@dataclass(frozen=True)
class Stated:
    """One stated answer: its text, its place [start, end) in the text it was read from, and whether it is hedged."""

    answer: str
    start: int
    end: int
    hedged: bool = False


def find_stated(text: str) -> list[Stated]:
    """Everything `text` (signs already plain) states as its answer, in order: boxes, or sentences if there is no box.

    Hedged ones are marked, not left out.
    """
    boxes = [Stated(answer, start, end, hedged(text, start, end)) for answer, start, end in _boxes(text)]
    return boxes or [Stated(*found) for found in sentence_statements(text)]


def stated_answers(text: str) -> list[str]:
    """The answers a text states, in order, hedged ones left out. What a judge reads; the last one counts."""
    return [stated.answer for stated in find_stated(plain_signs(text)) if not stated.hedged]


def extract_answer(text: str) -> str | None:
    """The answer a response gives, None where it gives none. A final box counts whatever surrounds it."""
    text = plain_signs(text)
    boxes = _boxes(text)
    if boxes:
        return boxes[-1][0]
    stated = [s.answer for s in find_stated(text) if not s.hedged]
    return stated[-1] if stated else _bare_expression(text)


def _boxes(text: str) -> list[tuple[str, int, int]]:
    """(content, start, end) of the outermost complete boxes that are not empty."""
    found, at, closing = [], 0, _closing_braces(text)
    while match := BOX.search(text, at):
        close = closing.get(match.end() - 1)
        if close is None:
            at = match.end()
            continue
        content = _without_boxes(text[match.end() : close])
        if not EMPTY.match(content):
            found.append((content, match.start(), close + 1))
        at = close + 1
    return found


def _closing_braces(text: str) -> dict[int, int]:
    """Index of each opening brace that is closed -> index of its closing one; escaped braces do not count."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for match in BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


def _without_boxes(content: str) -> str:
    """`content` (braces balanced) with inner box commands and their braces taken out, what they hold left in."""
    closing, cuts = _closing_braces(content), []
    for match in BOX.finditer(content):
        close = closing[match.end() - 1]
        cuts += [(match.start(), match.end()), (close, close + 1)]
    kept, at = [], 0
    for start, end in sorted(cuts):
        kept.append(content[at:start])
        at = end
    return "".join([*kept, content[at:]]).strip()


def _bare_expression(text: str) -> str | None:
    """The last line if it is an assignment, or the whole text if it is one line; never with words of prose or a box."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines or len(lines[-1]) > BARE_LIMIT or BOX.search(text):
        return None
    last = re.sub(r"[.。]$", "", lines[-1])
    if PROSE.search(re.sub(r"\\[A-Za-z]+", " ", last)) or "?" in last:
        return None
    return last if len(lines) == 1 or ASSIGNMENT_LINE.match(last) else None
