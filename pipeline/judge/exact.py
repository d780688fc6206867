"""The judge by rule: a segment is right if it states the reference answer.

Rules, in this order:
1. The segment must state an answer (grading's extractor): a box, "the answer is X", "Answer: X", a last line in bold,
   and so on. The number alone, say as a step of a sum, is not a statement.
2. Guesses, questions, conditions and denials do not state ("maybe it is 5", "is the answer 5?", "if the answer is 5",
   "the answer is not 5"). See pipeline/grading/statements.py.
3. A statement that is copied from the problem is a quotation, not an answer.
4. Of several statements the last one counts.
5. It must equal the reference for the grader. Where the grader fails, the item has failed (NaN).
"""

import math
import re
from collections.abc import Sequence

from pipeline.grading import Verdict, same_answer
from pipeline.grading.extract import Stated, find_stated
from pipeline.grading.normalise import plain_signs
from pipeline.judge.base import JudgeItem

WORDS_BEFORE = 3  # words before a statement that must also be in the problem to call it a quotation
SAID = {Verdict.RIGHT: 1.0, Verdict.WRONG: 0.0, Verdict.UNKNOWN: math.nan}
SENTENCE_START = re.compile(r"[.!?。]\s+|\n")


class ExactJudge:
    """Judges by the rules above; deterministic, and as precise as the grader."""

    def probabilities(self, items: Sequence[JudgeItem]) -> list[float]:
        """1.0, 0.0, or NaN where the grader could not compare."""
        return [_probability(item) for item in items]

    def judge(self, items: Sequence[JudgeItem]) -> list[float]:
        """`probabilities` with failures as no."""
        return [0.0 if math.isnan(p) else p for p in self.probabilities(items)]


def _probability(item: JudgeItem) -> float:
    answer = stated_answer(item.segment_text, item.problem)
    return 0.0 if answer is None else SAID[same_answer(answer, item.gold)]


def stated_answer(segment_text: str, problem: str = "") -> str | None:
    """The last answer a segment states of its own accord, None where it states none."""
    text, known = plain_signs(segment_text), _flat(plain_signs(problem))
    own = [s.answer for s in find_stated(text) if not s.hedged and not _quoted(text, s, known)]
    return own[-1] if own else None


def _quoted(text: str, stated: Stated, problem: str) -> bool:
    """Whether the statement, with up to three words of its sentence before it, stands in the problem."""
    before = SENTENCE_START.split(text[: stated.start])[-1].split()[-WORDS_BEFORE:]
    return bool(problem) and _flat(" ".join([*before, text[stated.start : stated.end]])) in problem


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())
