"""Cut the thinking part of a trace into segments, and read the necessary prefix off their verdicts.

A segment is the unit a judge sees (DECS, arXiv 2509.25827, section 4.1). The end-of-think tag is cut off first, so no
answer token is ever in a segment.
"""

import re
from collections.abc import Iterator, Sequence

from pipeline.traces.marks import SPLIT_WORDS, Marks, as_marks
from pipeline.traces.offsets import Offsets, Tokenizer, token_offsets
from pipeline.traces.thinking import split_at

Span = tuple[int, int]
SPLIT_PATTERN = re.compile(rf" ?(?<!\w)(?:{'|'.join(SPLIT_WORDS)})(?!\w)")


def segment(token_ids: Sequence[int], tokenizer: Marks | Tokenizer) -> list[Span]:
    """Token spans [start, end) of the segments of a response's thinking part; they concatenate to [0, think_length).

    `token_ids` [T] is the response (with or without tag and answer). Every split word opens a chunk, mid-sentence too;
    chunks without an inner newline are merged into the next one that has one (or the last). Empty thinking: no segment.
    Where words are matched in text, a token belongs to the segment in which its first character lies.
    """
    marks = as_marks(tokenizer)
    if marks.by_text:
        offsets = _offsets(token_ids, marks)
        think_length = split_at(token_ids, marks, offsets).think_length
        starts = _word_tokens(offsets, think_length)
        newline = [i for i in range(think_length) if "\n" in _token_text(offsets, i)]
    else:
        think_length = split_at(token_ids, marks).think_length
        starts = [i for i in range(think_length) if token_ids[i] in marks.split_ids]
        newline = [i for i in range(think_length) if token_ids[i] in marks.newline_ids]
    return _merge(_chunks(starts, think_length), frozenset(newline))


def prefix_length(segments: Sequence[Span], verdicts: Sequence[bool]) -> int | None:
    """Tokens up to the end of the first segment judged right (paper eq. 8); None where no verdict is yes.

    Verdicts may stop early: a judge need not look past its first yes, and labels after it change nothing.
    """
    return next((end for (_, end), yes in zip(segments, verdicts, strict=False) if yes), None)


def _offsets(token_ids: Sequence[int], marks: Marks) -> Offsets:
    assert marks.tokenizer is not None, "text matching needs the tokenizer"
    return token_offsets(token_ids, marks.tokenizer)


def _word_tokens(offsets: Offsets, think_length: int) -> list[int]:
    found = (offsets.token_from(match.start()) for match in SPLIT_PATTERN.finditer(offsets.text))
    return sorted({token for token in found if token < think_length})


def _token_text(offsets: Offsets, i: int) -> str:
    end = offsets.starts[i + 1] if i + 1 < len(offsets.starts) else len(offsets.text)
    return offsets.text[offsets.starts[i] : end]


def _chunks(starts: Sequence[int], length: int) -> Iterator[Span]:
    edges = sorted({0, *starts, length})
    return zip(edges, edges[1:], strict=False)


def _multi_line(start: int, end: int, newline: frozenset[int]) -> bool:
    """A newline after the first other token and a newline before the last other token."""
    others = [i for i in range(start, end) if i not in newline]
    if not others:
        return False
    after_first = any(i in newline for i in range(others[0] + 1, end))
    return after_first and any(i in newline for i in range(start, others[-1]))


def _merge(chunks: Iterator[Span], newline: frozenset[int]) -> list[Span]:
    """Chunks that are not multi-line wait for the next that is; the last chunk takes whatever waits."""
    merged: list[Span] = []
    waiting: int | None = None
    end = 0
    for start, end in chunks:
        waiting = start if waiting is None else waiting
        if _multi_line(start, end, newline):
            merged.append((waiting, end))
            waiting = None
    return merged if waiting is None else [*merged, (waiting, end)]
