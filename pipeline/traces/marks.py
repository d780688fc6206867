"""The tokens that cut a trace: split words, newlines and the end-of-think tag, resolved once for a tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.config import UserError
from pipeline.traces.offsets import Tokenizer, decode

SPLIT_WORDS = ("Wait", "But", "Alternatively", "Hmm", "Let", "Therefore")
SPLIT_STRINGS = tuple(lead + word for word in SPLIT_WORDS for lead in ("", " "))
NEWLINE_STRINGS = ("\n", " \n", "\n\n", " \n\n", ".\n", ".\n\n")


@dataclass(frozen=True)
class Marks:
    """Ids that cut a trace (DECS, arXiv 2509.25827, section 4.1; token level).

    `split_ids` open a new chunk, `newline_ids` make a chunk multi-line, `think_end_id` ends the thinking part.
    `by_text` is the mode for vocabularies in which a split word or the tag is not exactly one token: words, newlines
    and the tag are then found in the decoded text and mapped back by offsets. It is chosen automatically.
    """

    split_ids: frozenset[int] = frozenset()
    newline_ids: frozenset[int] = frozenset()
    think_end_id: int | None = None
    think_end: str = "</think>"
    by_text: bool = False
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, think_end: str = "</think>") -> "Marks":
        """Resolve the marks. Falls back to text matching where a split word or the tag is not one token.

        Raises UserError where the tokenizer cannot write a newline or the tag at all.
        """
        newline_ids = _newline_ids(tokenizer)
        tag_id = _only_id(tokenizer, think_end)
        split_ids = [_only_id(tokenizer, text) for text in SPLIT_STRINGS]
        _check_writable(tokenizer, think_end, newline_ids)
        if tag_id is None or None in split_ids or not newline_ids:
            return cls(think_end=think_end, by_text=True, tokenizer=tokenizer)
        found = frozenset(i for i in split_ids if i is not None)
        return cls(found, newline_ids, tag_id, think_end, tokenizer=tokenizer)


def as_marks(source: "Marks | Tokenizer") -> Marks:
    """Marks as they are; a tokenizer resolved with the default tag."""
    return source if isinstance(source, Marks) else Marks.from_tokenizer(source)


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _only_id(tokenizer: Tokenizer, text: str) -> int | None:
    """The id of `text` if it is exactly one token that reads as `text` (so an unknown-word token never passes)."""
    ids = _encode(tokenizer, text)
    return ids[0] if len(ids) == 1 and decode(tokenizer, ids).strip() == text.strip() else None


def _newline_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """First id of each newline string; ids whose own text holds no newline (a lone space or period) are left out."""
    firsts = {ids[0] for ids in (_encode(tokenizer, text) for text in NEWLINE_STRINGS) if ids}
    return frozenset(i for i in firsts if "\n" in decode(tokenizer, [i]))


def _check_writable(tokenizer: Tokenizer, think_end: str, newline_ids: Sequence[int] | frozenset[int]) -> None:
    if not think_end:
        raise UserError("model.think_end is empty; give the tag that ends the thinking part, such as '</think>'")
    if think_end not in decode(tokenizer, _encode(tokenizer, think_end)):
        raise UserError(
            f"The tokenizer cannot write the end-of-think tag '{think_end}' (model.think_end); "
            "use a tokenizer that has it or set model.think_end to the tag it has"
        )
    if not newline_ids and "\n" not in decode(tokenizer, _encode(tokenizer, "a\nb")):
        raise UserError("The tokenizer cannot write a newline, so traces cannot be cut; use one that keeps newlines")
