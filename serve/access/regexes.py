"""How much a client's regex could cost the engine.

xgrammar follows all readings of a text at once. Of `a{1,100000}` there is one; `(a{1,100}){1,100}` and `(a*)*` have so
many that one step of the engine, which all requests wait for, takes seconds and more.
"""

import re
from dataclasses import dataclass

UNBOUNDED = 16  # copies that `*`, `+` and `{n,}` count for
ENDLESS = 1 << 30  # of an unbounded repeat of what may be empty
_ATOMS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<repeat>[*+?]|\{\s*(\d+)\s*(,)?\s*(\d*)\s*\})"
    r"|(?P<open>\((?:\?(?::|=|!|<=|<!|P?<\w+>))?)|[)|]|.",
    re.DOTALL,
)
_NO_WIDTH = ("^", "$", r"\b", r"\B")


@dataclass
class _Part:
    """A piece of a regex: the most copies of a sign that repeats in it make (0: none repeats), and whether it may be
    empty."""

    copies: int = 0
    may_be_empty: bool = False


class _Group:
    """An open group: the parts of the alternative being read, and what the alternatives before were."""

    def __init__(self) -> None:
        self._copies, self._is_empty, self._was_empty = 0, True, False
        self.last: _Part | None = None  # a repeat may still follow it

    def add(self, part: _Part | None) -> None:
        """Takes in the last part, and makes `part` the last."""
        if self.last is not None:
            self._copies = max(self._copies, self.last.copies)
            self._is_empty &= self.last.may_be_empty
        self.last = part

    def next_alternative(self) -> None:
        self.add(None)
        self._was_empty |= self._is_empty
        self._is_empty = True

    def closed(self) -> _Part:
        self.next_alternative()
        return _Part(self._copies, self._was_empty)


def nested_repeats(regex: str) -> int:
    """The largest number of copies that a repeat of something that itself repeats stands for; 0 without such a repeat,
    ENDLESS where what may be empty repeats without a bound."""
    worst, groups = 0, [_Group()]
    for found in _ATOMS.finditer(regex):
        text, group = found.group(), groups[-1]
        if found["open"]:
            groups.append(_Group())
        elif text == ")" and len(groups) > 1:
            groups.pop()
            groups[-1].add(group.closed())
        elif text == "|":
            group.next_alternative()
        elif not found["repeat"]:
            group.add(_Part(may_be_empty=text in _NO_WIDTH))
        elif group.last is not None:
            worst = max(worst, _repeated(group.last, found))
    return worst


def _repeated(part: _Part, found: re.Match[str]) -> int:
    """Makes `part` a repeat of what it was; returns the copies where that is one of the costly kind, else 0."""
    sign, low, comma, high = found.group("repeat"), found.group(2), found.group(3), found.group(4)
    least = int(low[:9]) if low else 1 if sign == "+" else 0
    is_unbounded = sign in "*+" or bool(comma and not high)
    most = max(least, UNBOUNDED) if is_unbounded else 1 if sign == "?" else max(int((high or low)[:9]), 1)
    cost = ENDLESS if is_unbounded and part.may_be_empty else part.copies * most
    part.copies = max(part.copies, 1) * most
    part.may_be_empty = part.may_be_empty or least == 0
    return cost
