"""Grading: right, wrong or unknown. Importing this never loads sympy; its workers do."""

from pipeline.grading.extract import extract_answer, stated_answers
from pipeline.grading.grader import counters, grade, grade_response, same_answer
from pipeline.grading.pool import close, configure
from pipeline.grading.verdict import Failure, Verdict

__all__ = [
    "Failure",
    "Verdict",
    "close",
    "configure",
    "counters",
    "extract_answer",
    "grade",
    "grade_response",
    "same_answer",
    "stated_answers",
]
