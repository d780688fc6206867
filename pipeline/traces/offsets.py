"""Text <-> tokens: which characters each token wrote, and which tokens a span of characters belongs to.

Tokens need not end where characters end: byte-level tokens split emoji and rare signs, and one token may hold the end
of a sentence and the blank line after it. Two rules keep every mapping a partition:
a character made by several tokens begins at the first of them, and a token belongs wholly to the span in which its
first character lies.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

BROKEN = "\ufffd"  # what decoders write for bytes that are not (yet) a character
PENDING_LIMIT = 8  # a character has at most 4 bytes; longer runs are bytes that never become one


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer this room uses."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str: ...


@dataclass(frozen=True)
class Offsets:
    """`text` of a token sequence; token i wrote characters [starts[i], starts[i + 1]) (the last one up to the end).

    Tokens that only begin a character have an empty range at that character's place.
    """

    text: str
    starts: tuple[int, ...]

    def token_holding(self, position: int) -> int:
        """Index of the first token that wrote any part of the character at `position`; T at or past the end."""
        if position >= len(self.text):
            return len(self.starts)
        first = bisect_left(self.starts, position)
        exact = first < len(self.starts) and self.starts[first] == position
        return first if exact else bisect_right(self.starts, position) - 1

    def token_from(self, position: int) -> int:
        """Index of the first token whose first character lies at or after `position`; T where there is none."""
        return len(self.starts) if position >= len(self.text) else bisect_left(self.starts, position)

    def token_span(self, start: int, end: int) -> tuple[int, int]:
        """Characters [start, end) as tokens [first, last), each token by its first character.

        Adjacent character spans give adjacent token spans, so spans that partition the text partition the tokens.
        """
        return (0 if start == 0 else self.token_from(start)), self.token_from(end)


def decode(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """The exact text of `token_ids`, special tokens included."""
    return tokenizer.decode(list(token_ids), skip_special_tokens=False)


def token_offsets(token_ids: Sequence[int], tokenizer: Tokenizer) -> Offsets:
    """Character offsets of every token [T], by decoding a short sliding window (linear in T).

    Works with any decoder: no table of bytes is needed. Invalid bytes show as U+FFFD and never move a boundary of the
    tokens around them.
    """
    ids = list(token_ids)
    pieces: list[str] = []
    base = done = 0  # window start; tokens [0, done) have their text
    known = ""
    for i in range(len(ids)):
        window = decode(tokenizer, ids[base : i + 1])
        waiting = i - done
        if window.endswith(BROKEN) and waiting < PENDING_LIMIT and i + 1 < len(ids):
            continue
        new = window[len(known) :] if window.startswith(known) else decode(tokenizer, ids[done : i + 1])
        pieces += _share(new, decode(tokenizer, ids[i : i + 1]), waiting)
        base, done = done, i + 1
        known = decode(tokenizer, ids[base:done])
    return _offsets(pieces)


def _share(text: str, last_alone: str, waiting: int) -> list[str]:
    """Text of `waiting` unfinished tokens and the one after them. Whole text in the last one is its own; what is left
    (bytes that never became a character) stays with the token before it."""
    if not waiting:
        return [text]
    if last_alone and BROKEN not in last_alone and text.endswith(last_alone):
        return [""] * (waiting - 1) + [text[: len(text) - len(last_alone)], last_alone]
    return [""] * waiting + [text]


def _offsets(pieces: list[str]) -> Offsets:
    starts, position = [], 0
    for piece in pieces:
        starts.append(position)
        position += len(piece)
    return Offsets("".join(pieces), tuple(starts))
