"""Drafters for speculative speculative decoding: what may come next in a text, by the text itself. numpy only."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

LONGEST = 4  # tokens of a phrase that is looked for
KEPT = 64  # latest places of a phrase that are looked at


class Drafter(Protocol):
    """Guesses at what a target will write. Nothing it says can change the reply, only how fast it comes."""

    def draft(self, text: Sequence[int], k: int) -> list[int]:
        """Up to `k` tokens that may follow `text`."""
        ...

    def choices(self, text: Sequence[int], draft: Sequence[int], widths: Sequence[int]) -> list[list[int]]:
        """For each number of accepted draft tokens 0 ... len(draft), up to `widths` of it tokens that the target may
        add there instead of the next draft token, the likeliest first."""
        ...


class TextDrafter:
    """Looks for the text's last tokens earlier in the same text, and expects what followed there: the longest phrase
    first (at most `LONGEST` tokens), of equal ones the latest. Nothing is kept between calls or shared by requests."""

    def draft(self, text: Sequence[int], k: int) -> list[int]:
        tokens = np.asarray(text)
        ends = _matches(tokens)
        return tokens[ends[0] + 1 : ends[0] + 1 + k].tolist() if len(ends) else []

    def choices(self, text: Sequence[int], draft: Sequence[int], widths: Sequence[int]) -> list[list[int]]:
        whole, found = np.asarray([*text, *draft]), []
        for accepted, width in zip(range(len(draft) + 1), widths, strict=True):
            tokens = whole[: len(text) + accepted]
            followers = dict.fromkeys(tokens[_matches(tokens) + 1].tolist() if width else [])
            if accepted < len(draft):
                followers.pop(draft[accepted], None)  # a target that adds it has accepted it
            found.append(list(followers)[:width])
        return found


def _matches(tokens: np.ndarray) -> np.ndarray:
    """Places before the last where a phrase ends that the text ends with, the best first; at most KEPT by length."""
    if len(tokens) < 2:
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])[::-1]
    best, length = [ends[:KEPT]], 1
    while length < LONGEST and length < len(tokens) - 1 and len(ends):
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[-1 - length]]
        best.append(ends[:KEPT])
        length += 1
    ordered = np.concatenate(best[::-1])
    _, first = np.unique(ordered, return_index=True)
    return ordered[np.sort(first)]
