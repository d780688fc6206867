"""Which span of a text is its answer, and that every reader of answers picks the same one."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.graders import grade_math
from pipeline.grading import Verdict, extract_answer, grade, grade_response, stated_answers
from pipeline.judge import ExactJudge, JudgeItem
from pipeline.problems import Problem

BOXES = [
    ("12", r"First \boxed{7}, then finally \boxed{12}", True),
    ("16", r"So \boxed{16}. Because 16=4^2 it stays \boxed{16}.", True),
    (r"\frac{3}{4}", r"\boxed{\boxed{\frac{3}{4}}}", True),
    (r"\frac{3}{4}", r"\fbox{\frac{3}{4}}", True),
    ("4", r"\boxed{} and then \boxed{4}", True),
    ("4", r"\boxed{4} and then \boxed{ \, }", True),
    ("58", "## Final Answer: **58** (I confirmed it in 3 ways)", True),
    (r"\frac{1}{3}", r"\boxed{\frac{1}{3}}", True),
    (r"\{1,2\}", r"\boxed{\{1,2\}}", True),
    ("7", r"First \boxed{7}, then finally \boxed{12}", False),
    ("3", "## Final Answer: **58** (I confirmed it in 3 ways)", False),
    ("12", "So it is not 12.", False),
    ("4", r"\boxed{4", False),
    ("4", r"The answer is \boxed{4", False),
    ("3", r"It is \boxed{3}, no, \boxed{4", True),  # the last complete box
    ("42", "I am not sure.", False),
]


@pytest.mark.parametrize(("gold", "text", "right"), BOXES)
def test_every_reader_agrees(gold, text, right):
    assert (grade(text, gold) is Verdict.RIGHT) is right
    assert (grade_response(text, gold, ends_seen=1) is Verdict.RIGHT) is right
    assert (grade_math(text, Problem("p", "", gold, "s"), 1) is Verdict.RIGHT) is right
    assert (ExactJudge().judge([JudgeItem("", gold, text)]) == [1.0]) is right
    stated = stated_answers(text)
    assert extract_answer(text) == (stated[-1] if stated else None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("**Final Answer**\n\n**58**", "58"),
        ("**Final Answer**\n\\[ \\boxed{58} \\]", "58"),
        ("Final answer\n58", "58"),
        ("Answer: 12", "12"),
        ("**Answer:** 12", "12"),
        ("The answer is\n\\[\n12\n\\]", "12"),
        ("The final answer is $\\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        ("The answer is \\(12\\).", "12"),
        ("The answer is 12 because 3*4 = 12.", "12"),
        ("The answer is 12. The answer is correct.", "12"),
        ("The answer is 7. But wait, the answer is 8.", "8"),
        ("The answer to the problem is 3.5.", "3.5"),
        ("So the answer is b, c.", "b, c"),
        ("So the answer is x = 3.", "x = 3"),
        ("It's not 3, the answer is 4.", "4"),
        ("Thus,\n\n**12**", "12"),
        ("We add them.\nx = −7", "x = -7"),
        ("0.625", "0.625"),
        ("We add 3 and 4 to get 7", None),
        ("7 + 5 = 12\nSo 12.", None),
        ("", None),
    ],
)
def test_statements(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "maybe it is 5",
        "perhaps the answer is 5?",
        "Is the answer 5?",
        "the answer is 5, right?",
        "the answer is not 5",
        "I don't think the answer is 5.",
        "The answer is 5, which is wrong.",
        "if the answer is 5",
        "I wonder whether the answer is 5.",
        "Suppose the answer is 5.",
        "the problem says the answer is 5",
        "The answer is 5 if x is even.",
        "答案不是5",
        "答案是5吗？",
    ],
)
def test_hedged_statements_do_not_count(text):
    assert stated_answers(text) == []
    assert extract_answer(text) is None


def test_a_condition_that_is_closed_does_not_hedge():
    assert stated_answers("if b is 3 then c is 2, so the answer is 5") == ["5"]


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("64", r"答案是 \boxed{６４}。"),
        ("64", "答案是64。"),
        ("42", r"\boxed{٤٢}"),
        ("-7", "x = −7"),
        ("42", r"La respuesta es \boxed{42}."),
        ("42", "La respuesta final es 42."),
        ("42", "Die Antwort ist 42."),
        ("42", "答えは42です。"),
        ("42", "الجواب هو ٤٢"),
        ("3.5", r"\boxed{3{,}5}"),
        ("12", "\\boxed{1\u200f2}"),
        ("12", "\u202b\\boxed{\u200f12}\u202c"),
        ("1234", r"\boxed{1{,}234}"),
        ("1234567", r"\boxed{1,234,567}"),
        ("0.125", r"\boxed{0{,}125}"),
        ("100", "\\boxed{10²}"),
        ("0.5", "\\boxed{½}"),
        (r"2\sqrt{3}", "\\boxed{2√3}"),
        (r"3\pi", "\\boxed{3π}"),
    ],
)
def test_other_languages_and_signs(gold, text):
    assert grade(text, gold) is Verdict.RIGHT


def test_a_braced_comma_is_never_a_list():
    assert grade(r"\boxed{3{,}5}", "3, 5") is Verdict.WRONG
    assert grade(r"\boxed{3, 5}", "3.5") is Verdict.WRONG
    assert grade("\\boxed{10²}", "102") is Verdict.WRONG


def test_only_the_text_after_exactly_one_tag_is_graded():
    assert grade_response(r"\boxed{8}", "8", ends_seen=1) is Verdict.RIGHT
    for ends_seen in (0, 2):
        assert grade_response(r"\boxed{8}", "8", ends_seen=ends_seen) is Verdict.WRONG


@given(st.text(max_size=200))
def test_any_text_can_be_read(text):
    answer = extract_answer(text)
    assert answer is None or isinstance(answer, str)


FORMS = [r"\boxed{%s}", "So the answer is %s.", "**Answer:** %s", "答案是%s。"]


@given(st.integers(-(10**6), 10**6), st.sampled_from(FORMS))
def test_what_is_stated_is_found(value, form):
    assert grade(form % value, str(value)) is Verdict.RIGHT
    assert grade(form % value, str(value + 1)) is Verdict.WRONG


REPEATED = [r"\boxed{", r"\boxed{1", "the answer is 5 ", "The answer is 5. ", "{", "answer ", "**a", " \n"]


@pytest.mark.parametrize("unit", REPEATED)
def test_long_texts_are_read_quickly(unit):
    text = unit * (60_000 // len(unit))
    begin = time.process_time()
    extract_answer(text)
    extract_answer(text + "}" * 5000)
    assert time.process_time() - begin < 10
