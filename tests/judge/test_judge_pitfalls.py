"""What detectors of the first right segment are known to get wrong, for the exact judge and the shipped learned one.

Both rows of a pair are asked wherever that makes the pitfall plain: what looks like an answer, and an answer.
"""

import time

import pytest

from pipeline.config import ROOT
from pipeline.config.schema import Judge
from pipeline.judge import ExactJudge, JudgeItem, LearnedJudge, Unjudged

SHIPPED = Judge(name="learned", path=str(ROOT / "infra" / "models" / "judge"), max_tokens=511)
CHAIN = "What is 3 + 4 - 2?"
SEARCH = "a = 7, b = 3, c = 6, d = 3. Which two add up to 6?"
STEPS = "3 + 4 = 7\n7 - 2 = 5\n"

NO = {
    "the problem's own words, the answer's number in them": ("What is 5 + 0?", "5", "What is 5 + 0?"),
    "a guess": (CHAIN, "5", "maybe it is 5"),
    "a guess in the form of a statement": (CHAIN, "5", STEPS + "Maybe the answer is 5."),
    "a question": (CHAIN, "5", STEPS + "Is the answer 5?"),
    "a denial": (CHAIN, "5", STEPS + "the answer is not 5."),
    "a condition": (CHAIN, "5", "If the answer is 5, check again."),
    "the value alone, the end of a sum": (CHAIN, "5", STEPS.strip()),
    "an intermediate value that equals the answer": ("What is 3 + 4 - 0?", "7", "3 + 4 = 7\nLet me go on."),
    "an intermediate value beside another answer": (CHAIN, "7", STEPS + "So the answer is 5."),
    "the first half of a split answer": (CHAIN, "5", STEPS + "So the answer is"),
    "its other half": (CHAIN, "5", "5."),
    "the answer within a longer number": (CHAIN, "5", STEPS + "So the answer is 15."),
    "the answer as the beginning of one": (CHAIN, "5", STEPS + "So the answer is 52."),
    "the answer without its sign": (CHAIN, "5", STEPS + "So the answer is -5."),
    "one of two": (SEARCH, "b, d", "b + d = 3 + 3 = 6 vs 6: 0, yes\nSo the answer is b, c."),
    "taken back": (CHAIN, "5", STEPS + "So the answer is 5.\nWait, let me check that again.\nSo the answer is 6."),
    "nothing": (CHAIN, "5", ""),
}
YES = {
    "a statement": (CHAIN, "5", STEPS + "So the answer is 5."),
    "the same of a pair": (SEARCH, "b, d", "Wait, b + d = 3 + 3 = 6 vs 6: 0, yes\nSo the answer is b, d."),
    "after another one": (CHAIN, "5", "So the answer is 6.\nWait, let me check that again.\nSo the answer is 5."),
    "a negative one": (CHAIN, "-5", "3 - 8 = -5\nSo the answer is -5."),
    "with words of doubt before it": (CHAIN, "5", "But is that right? Let me check.\n" + STEPS + "So the answer is 5."),
    "boxed": (CHAIN, "5", STEPS + "So the answer is \\boxed{5}."),
}
EXACT_ONLY_YES = {  # the small judge knows the answer by its text, so it says no: too little is punished, not too much
    "another form of a number": (CHAIN, "1/2", "So the answer is 0.5."),
    "another order of a set": (SEARCH, "b, d", "So the answer is d, b."),
    "a number with its unit": (CHAIN, "5", "The answer is 5 apples."),
}
EXACT_ONLY_NO = {"a quotation": (f"{CHAIN} True or not: the answer is 5.", "5", "True or not: the answer is 5.")}


def pairs(cases):
    return [pytest.param(JudgeItem(*case), id=name) for name, case in cases.items()]


@pytest.fixture(scope="module")
def learned():
    return LearnedJudge(SHIPPED)


@pytest.mark.parametrize("item", pairs(NO | EXACT_ONLY_NO))
def test_the_exact_judge_says_no_to(item):
    assert ExactJudge().probabilities([item]) == [0.0]


@pytest.mark.parametrize("item", pairs(YES | EXACT_ONLY_YES))
def test_the_exact_judge_says_yes_to(item):
    assert ExactJudge().probabilities([item]) == [1.0]


@pytest.mark.parametrize("item", pairs(NO))
def test_the_learned_judge_says_no_to(item, learned):
    assert learned.probabilities([item])[0] < SHIPPED.threshold


@pytest.mark.parametrize("item", pairs(YES))
def test_the_learned_judge_says_yes_to(item, learned):
    assert learned.probabilities([item])[0] >= SHIPPED.threshold


def test_a_huge_segment():
    text = STEPS * 50_000
    began = time.monotonic()
    items = [JudgeItem(CHAIN, "5", text), JudgeItem(CHAIN, "5", text + "So the answer is 5.")]
    assert ExactJudge().probabilities(items) == [0.0, 1.0]
    assert time.monotonic() - began < 20


def test_a_huge_segment_is_not_guessed_at(learned):
    long = JudgeItem(CHAIN, "5", STEPS * 500 + "So the answer is 5.")
    assert learned.probabilities([long]) == [Unjudged.OVERLONG]


def test_the_statement_is_found_wherever_it_stands_in_a_long_segment(learned):
    said, wrong = "So the answer is 5.", "So the answer is 4."
    many = [said + "\n" + STEPS * 10, STEPS * 10 + said, wrong + "\n" + STEPS * 10, STEPS * 10 + wrong]
    found = learned.probabilities([JudgeItem(CHAIN, "5", text) for text in many])
    assert [p >= SHIPPED.threshold for p in found] == [True, True, False, False]
