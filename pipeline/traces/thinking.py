"""Where thinking ends, on token ids, and the text of either part without its tags.

Chat templates may end the prompt with the opening tag, so a response may hold the closing tag alone, both, or (with
thinking switched off) neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.traces.marks import Marks, as_marks
from pipeline.traces.offsets import Offsets, Tokenizer, token_offsets

THINK_START, THINK_END = "<think>", "</think>"
PROMPT_TAIL = 32  # tokens: room for a tag in pieces and the white space after it


@dataclass(frozen=True)
class Thinking:
    """A response's parts, as token indices: thinking [0, think_length), the tag, answer [answer_start, T).

    `ends_seen` counts end-of-think tags; 0 means cut off while thinking (think_length = answer_start = T).
    """

    think_length: int
    answer_start: int
    ends_seen: int


def split_thinking(token_ids: Sequence[int], tokenizer: Marks | Tokenizer) -> Thinking:
    """Find the first end-of-think tag of a response [T]. An opening tag, if any, is part of the thinking.

    Where the tag is not one token it is found in the decoded text: tokens that hold any part of it belong to the tag.
    """
    marks = as_marks(tokenizer)
    if not marks.by_text:
        return split_at(token_ids, marks)
    assert marks.tokenizer is not None, "text matching needs the tokenizer"
    return split_at(token_ids, marks, token_offsets(token_ids, marks.tokenizer))


def split_at(token_ids: Sequence[int], marks: Marks, offsets: Offsets | None = None) -> Thinking:
    """`split_thinking` with the offsets already at hand (needed only where marks are matched by text)."""
    length = len(token_ids)
    if offsets is not None:
        at = offsets.text.find(marks.think_end)
        if at < 0:
            return Thinking(length, length, 0)
        end = at + len(marks.think_end)
        return Thinking(offsets.token_holding(at), offsets.token_from(end), offsets.text.count(marks.think_end))
    seen = [i for i, token in enumerate(token_ids) if token == marks.think_end_id]
    return Thinking(seen[0], seen[0] + 1, len(seen)) if seen else Thinking(length, length, 0)


def closes_thinking(prompt_ids: Sequence[int], marks: Marks) -> bool:
    """Whether a prompt [P] ends with the end-of-think tag (and white space), as where thinking is switched off.

    A tag further up is text of the question and says nothing about the response.
    """
    if marks.tokenizer is None:
        return bool(prompt_ids) and prompt_ids[-1] == marks.think_end_id
    tail = list(prompt_ids[-PROMPT_TAIL:])
    return marks.tokenizer.decode(tail, skip_special_tokens=False).rstrip().endswith(marks.think_end)


def answer_text(token_ids: Sequence[int], thinking: Thinking, tokenizer: Tokenizer) -> str:
    """The text after the tag, special tokens left out; empty where the tag is missing. Never holds the prompt."""
    return tokenizer.decode(list(token_ids[thinking.answer_start :]), skip_special_tokens=True).strip()


def segment_texts(
    token_ids: Sequence[int],
    segments: Sequence[tuple[int, int]],
    tokenizer: Tokenizer,
    think_start: str = THINK_START,
    think_end: str = THINK_END,
) -> list[str]:
    """What a judge reads for each segment: its own tokens decoded, without special tokens or tag text."""
    texts = (tokenizer.decode(list(token_ids[start:end]), skip_special_tokens=True) for start, end in segments)
    return [without_tags(text, think_start, think_end) for text in texts]


def without_tags(text: str, think_start: str = THINK_START, think_end: str = THINK_END) -> str:
    """`text` stripped, with every tag removed (also one that appears when another is taken out)."""
    while think_start in text or think_end in text:
        text = text.replace(think_start, "").replace(think_end, "")
    return text.strip()
