"""From an answer to a verdict, by the kind of benchmark. Training grades as mathematics."""

from collections.abc import Callable

from pipeline.config import Evaluation
from pipeline.evaluation.choice import grade_choice
from pipeline.evaluation.code import grade_program
from pipeline.evaluation.sandbox import Limits
from pipeline.evaluation.suites import Kind
from pipeline.grading import Verdict, grade_response
from pipeline.problems import Problem

Grader = Callable[[str, Problem, int], Verdict]


def grade_math(answer: str, problem: Problem, ends_seen: int) -> Verdict:
    """By value, and only what follows exactly one end-of-think tag."""
    return grade_response(answer, problem.gold, ends_seen)


def grader_for(kind: Kind, options: Evaluation) -> Grader:
    """`grade(answer, problem, ends_seen)`: `answer` is the text after the end-of-think tag.

    Whatever the kind, a response that was cut off while thinking or closes its thinking twice is WRONG, as in training.
    """
    limits = Limits(options.code_seconds, options.code_memory_mb << 20)

    def graded(answer: str, problem: Problem, ends_seen: int) -> Verdict:
        if ends_seen != 1:
            return Verdict.WRONG
        if kind is Kind.CHOICE:
            return grade_choice(answer, problem.gold)
        return grade_program(answer, problem.meta["tests"], problem.meta["function"], limits)

    return grade_math if kind is Kind.MATH else graded
