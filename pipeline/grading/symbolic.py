"""Algebra for answers that plain comparison leaves open. Imported by the worker only: sympy takes seconds to load."""

import logging

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, I, MatrixBase

from pipeline.grading.compare import settle
from pipeline.grading.normalise import canonical
from pipeline.grading.strict import strictly_equal

logging.getLogger("math_verify").setLevel(logging.ERROR)  # its note on missing time limits: the pool sets them
LATEX = [LatexExtractionConfig()]


class UnreadableGold(ValueError):
    """The reference answer cannot be parsed, so nothing can be said about any answer."""


def equal(answer: str, gold: str) -> bool:
    """Whether two answers are the same thing; lists item by item. Raises UnreadableGold, or whatever the parser raises.

    May run for ever: only call it where something else holds the clock.
    """
    known = settle(answer, gold, _equal_items)
    return _equal_items(answer, gold) if known is None else known


def _equal_items(answer: str, gold: str) -> bool:
    golds = _read(gold)
    if not golds:
        raise UnreadableGold(gold)
    return any(_same(a, g) for a in _read(answer) for g in golds)


def _read(text: str) -> list[Basic | MatrixBase]:
    """Parsed forms of one answer (never a part of it, such as the last number in it)."""
    found = parse(f"${canonical(text)}$", LATEX, parsing_timeout=None, raise_on_error=True)
    return [item for item in found if isinstance(item, (Basic, MatrixBase))]


def _same(answer: Basic | MatrixBase, gold: Basic | MatrixBase) -> bool:
    if _same_as_read(answer, gold):
        return True
    imaginary = {symbol: I for symbol in answer.free_symbols | gold.free_symbols if symbol.name == "i"}
    return bool(imaginary) and _same_as_read(answer.xreplace(imaginary), gold.xreplace(imaginary))


def _same_as_read(answer: Basic | MatrixBase, gold: Basic | MatrixBase) -> bool:
    if not verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True):
        return False
    return strictly_equal(answer, gold)
