"""What counts as stating the answer."""

import math

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Judge
from pipeline.grading import Verdict
from pipeline.judge import ExactJudge, JudgeItem, build_judge, stated_answer

PROBLEM = "What is 3 + 4 + 5?"


def says(text, gold="12", problem=PROBLEM):
    return ExactJudge().judge([JudgeItem(problem, gold, text)])[0] == 1.0


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("3 + 4 = 7\n7 + 5 = 12\nSo the answer is 12.", "12"),
        ("So the answer is b, c.", "b, c"),
        ("So the answer is c, b.", "b, c"),
        (" Wait, check. Answer: 12", "12"),
        (r"Therefore \boxed{12}.", "12"),
        ("That gives\n**12**", "12"),
        ("The answer is 0.5.", r"\frac{1}{2}"),
        ("Not 3. So the answer is 5.", "5"),
    ],
)
def test_stating_the_answer_is_yes(text, gold):
    assert says(text, gold)


@pytest.mark.parametrize(
    "text",
    [
        "maybe it is 12",
        "Maybe the answer is 12.",
        "perhaps the answer is 12?",
        "Is the answer 12?",
        "the answer is not 12",
        "if the answer is 12",
        "if the answer is 12, then c is 5.",
        r"Could it be \boxed{12}?",
        r"For example \boxed{12}.",
        "3 + 4 = 7\n7 + 5 = 12",  # the number, not a statement
        "12",
        "Let me add 12 and 5.",
        "",
    ],
)
def test_not_stating_it_is_no(text):
    assert not says(text)


def test_of_two_statements_the_last_counts():
    assert says("The answer is 11. Hmm, no: the answer is 12.")
    assert not says("The answer is 12. Hmm, no: the answer is 11.")
    assert says(r"First \boxed{11}, then \boxed{12}.")


def test_a_copy_of_the_problem_is_no():
    problem = r"Put the result in \boxed{}, e.g. \boxed{42}. What is 6 times 7? Do not guess 42 without working."
    assert not says(r"I should put the result in \boxed{}, e.g. \boxed{42}.", "42", problem)
    assert not says("I am not sure.", "42", problem)
    assert not says("What is 6 times 7? Do not guess 42 without working.", "42", problem)
    assert says(r"6 times 7 is 42, so \boxed{42}.", "42", problem)
    stem = "True or false: the answer is 42. Explain."
    assert stated_answer("True or false: the answer is 42.", stem) is None
    assert stated_answer("6 * 7 = 42, so the answer is 42.", stem) == "42"


def test_a_grader_that_fails_is_not_a_no_for_the_actor(monkeypatch):
    monkeypatch.setattr("pipeline.judge.exact.same_answer", lambda answer, gold: Verdict.UNKNOWN)
    item = JudgeItem(PROBLEM, "12", "The answer is 12.")
    assert math.isnan(ExactJudge().probabilities([item])[0])
    assert ExactJudge().judge([item]) == [0.0]


def test_judges_are_built_by_name():
    assert isinstance(build_judge(Judge()), ExactJudge)
    with pytest.raises(UserError, match="did you mean 'exact'"):
        build_judge(Judge.model_construct(name="exat"))
