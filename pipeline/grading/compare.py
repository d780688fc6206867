"""Comparing two answers without algebra: spellings, exact numbers, and lists of such.

Says True or False where that settles it and None where algebra is needed. Numbers are compared exactly, as fractions:
there is no tolerance, so 0.333 is not 1/3 and 0.1 is not 0.10000001.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from pipeline.grading.normalise import canonical

DIGIT_LIMIT = 1000  # longer numerals are left to the worker and its deadline
DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
RATIO = re.compile(rf"^([+-]?)({DECIMAL})(?:/({DECIMAL}))?$")
LATEX_RATIO = re.compile(rf"^([+-]?)\\frac\{{([+-]?{DECIMAL})\}}\{{({DECIMAL})\}}$")
ASSIGNMENT = re.compile(r"^([A-Za-z](?:_\{?\w+\}?)?|\\[a-z]+)=([^=<>]+)$")
SHORT_UNITS = r"(?:mm|cm|dm|km|kg|mg|ml|cl|dl|hr|hrs|min|sec|ft|in|mi|lb|lbs|oz|mph|kph)(?![^\W\d_])"
NOT_UNITS = r"(?!(?:tau|phi|psi|theta|alpha|beta|gamma|sin|cos|tan|cot|sec|csc|log|exp|sqrt|inf|mod|times|hundred"
NOT_UNITS += r"|thousand|million|billion|dozen|and|or|over|plus|minus)(?![^\W\d_]))"
UNIT_WORD = rf"(?:{SHORT_UNITS}|{NOT_UNITS}[^\W\d_]{{3,}})"
UNIT_POWER = r"(?:\^\{?[23]\}?)?"
UNIT = re.compile(
    rf"^(.*?[\d}}])(?:\s+{UNIT_WORD}|{SHORT_UNITS}){UNIT_POWER}(?:(?:\s+|/)(?:{UNIT_WORD}|[hsmg](?!\w)){UNIT_POWER})*$"
)
CHOICE = re.compile(r"^\(([A-Za-z])\)$")  # (B) is B
BRACKETS = {"(": ")", "[": "]", "{": "}"}
ALL_OPENING, ALL_CLOSING = "([{", ")]}"

Element = Callable[[str, str], bool | None]


@dataclass(frozen=True)
class Listing:
    """Items between commas. `kind` is the pair of brackets, "" where there are none. Sets and bare lists are
    unordered (compared as multisets); in round or square brackets the order counts (points, intervals)."""

    kind: str
    items: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        return self.kind not in ("", "{}")


def number(text: str) -> Fraction | None:
    """A plain integer, decimal or ratio of them (`3/4`, `\\frac{3}{4}`), exact; None for anything else."""
    match = RATIO.match(text) or LATEX_RATIO.match(text)
    if not match or len(text) > DIGIT_LIMIT:
        return None
    under = Fraction(match[3]) if match[3] else Fraction(1)
    if under == 0:
        return None
    value = Fraction(match[2]) / under
    return -value if match[1] == "-" else value


def listing(text: str) -> Listing | None:
    """`text` (canonical) as a list, None if it is a single thing."""
    text = text.replace(r"\{", "{").replace(r"\}", "}") if text.startswith(r"\{") and text.endswith(r"\}") else text
    kind = ""
    if text[:1] in BRACKETS and _closes_at_end(text):
        kind, text = text[0] + text[-1], text[1:-1]
    items = _split(re.sub(r",?\s+(?:and|or|y|und|et)\s+|,?\s*\\(?:and|or)\s+", ",", text))
    if len(items) < 2 and not (kind == "{}" and items):
        return None
    return Listing(kind, tuple(items)) if all(items) else None


def _closes_at_end(text: str) -> bool:
    """Whether the first bracket is closed by the very last character (of any kind: intervals mix them)."""
    depth = 0
    for at, c in enumerate(text):
        depth += (c in ALL_OPENING) - (c in ALL_CLOSING)
        if depth == 0:
            return at == len(text) - 1
    return False


def _split(text: str) -> list[str]:
    """`text` at its commas outside brackets."""
    items, depth, start = [], 0, 0
    for at, c in enumerate(text):
        depth += (c in ALL_OPENING) - (c in ALL_CLOSING)
        if c == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    return [*items, text[start:].strip()]


def wordy(text: str) -> bool:
    """Whether `text` can only be words, not a product of variables: letters, with a run of four or yes, no, odd."""
    words = [word for word in re.split(r"[\s'’-]+", text) if word]
    known = text.casefold() in ("yes", "no", "odd")
    return all(word.isalpha() for word in words) and (known or any(len(word) > 3 for word in words))


def settle(answer: str, gold: str, element: Element | None = None) -> bool | None:
    """Compare two answers as written: True, False, or None where algebra is needed.

    `element` compares what is not plain inside lists (the worker passes its algebra); None leaves those open.
    """
    answer, gold = (CHOICE.sub(r"\1", canonical(text)) for text in (answer, gold))
    if not answer or not gold or answer == gold:
        return bool(answer and gold)
    listed = _lists(answer, gold, element)
    return listed if listed is not None else _single(answer, gold)


def _lists(answer: str, gold: str, element: Element | None) -> bool | None:
    ours, theirs = listing(answer), listing(gold)
    if ours is None and theirs is None:
        return None
    if ours is None or theirs is None:
        return _list_against_one(ours or theirs, gold if ours else answer)
    if len(ours.items) != len(theirs.items) or (ours.kind and theirs.kind and ours.kind != theirs.kind):
        return False
    rows = [[_element(a, g, element) for g in theirs.items] for a in ours.items]
    if ours.ordered or theirs.ordered:
        return _all([row[i] for i, row in enumerate(rows)])
    return _matching(rows)


def _list_against_one(many: Listing, one: str) -> bool | None:
    """A list is never a plain number or word; whether it is another thing (an inequality) needs algebra."""
    if len(many.items) == 1:
        return settle(many.items[0], one)
    return False if number(one) is not None or wordy(one) or len(one) == 1 else None


def _element(answer: str, gold: str, element: Element | None) -> bool | None:
    known = settle(answer, gold, element)
    return element(answer, gold) if known is None and element is not None else known


def _all(seen: list[bool | None]) -> bool | None:
    return False if False in seen else (None if None in seen else True)


def _matching(rows: list[list[bool | None]]) -> bool | None:
    """Whether every item has its own partner (rows: ours, columns: theirs). Undecided pairs leave it open."""
    sure = _perfect([[cell is True for cell in row] for row in rows])
    possible = _perfect([[cell is not False for cell in row] for row in rows])
    return True if sure else (None if possible else False)


def _perfect(rows: list[list[bool]]) -> bool:
    """Perfect bipartite matching by augmenting paths."""
    partner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fits in enumerate(rows[row]):
            if fits and column not in tried:
                tried.add(column)
                if column not in partner or place(partner[column], tried):
                    partner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(rows)))


def _single(answer: str, gold: str) -> bool | None:
    """Two single answers: assignment, number, percentage, unit or words."""
    ours, theirs = ASSIGNMENT.match(answer), ASSIGNMENT.match(gold)
    if ours and theirs and len(ours[1]) == len(theirs[1]) == 1:
        same = settle(ours[2], theirs[2])
        return same if ours[1] == theirs[1] else (None if same is None else False)
    if ours and not theirs and "=" not in gold:
        return settle(ours[2], gold)
    if theirs and not ours and "=" not in answer:
        return settle(answer, theirs[2])
    return _plain(answer, gold)


def _plain(answer: str, gold: str) -> bool | None:
    ours, theirs = _readings(answer), _readings(gold)
    if ours and theirs:
        return bool(set(ours) & set(theirs))
    if theirs and (unit := UNIT.match(answer)) and (value := number(unit[1].strip())) is not None:
        return value == number(gold)  # a unit the reference does not name
    if answer.replace(" ", "").isalpha() and len(answer) > 1 and answer.casefold() == gold.casefold():
        return True
    return False if wordy(gold) or (theirs and wordy(answer)) else None


def _readings(text: str) -> tuple[Fraction, ...]:
    """The number `text` is; both readings of a percentage, 50% as 50 and as 1/2 (references write either)."""
    match = re.match(r"^(.*?)\s*\\?%$", text)
    value = number(match[1] if match else text)
    if value is None:
        return ()
    return (value, value / 100) if match else (value,)
