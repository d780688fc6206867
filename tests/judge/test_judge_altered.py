"""Altered segments: what is replaced, what stays, and that labels come from reading the result."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.judge import ExactJudge, JudgeItem
from pipeline.judge.altered import NUMBER, Material, alter, near, renamed, shorten
from pipeline.judge.vocabulary import small_tokenizer

MATERIAL = Material(
    "What is 4 + 3 - 9?",
    "-2",
    ("4 + 3 = 7\n7 - 9 = -3\nSo the answer is -3.", "Wait, let me check that again.\n4 + 3 = 7\nSo the answer is -2."),
)
seeds = st.integers(0, 2**32)


def yes(item):
    return ExactJudge().probabilities([item])[0] == 1.0


@given(seeds)
def test_renaming_keeps_which_numbers_are_equal(seed):
    problem, gold, text = renamed(MATERIAL.problem, MATERIAL.gold, MATERIAL.texts[1], random.Random(seed))
    stated = re.search(r"So the answer is (.*)\.", text)[1]
    assert stated == gold
    _, other, wrong = renamed(MATERIAL.problem, MATERIAL.gold, MATERIAL.texts[0], random.Random(seed))
    assert re.search(r"So the answer is (.*)\.", wrong)[1] != other or len(other) > 1
    assert problem.startswith("What is ") and text.startswith("Wait, let me check that again.\n")


@given(seeds)
def test_renaming_numbers_moves_them_everywhere_alike(seed):
    rng = random.Random(seed)
    rng.choice = lambda options: "numbers" if "numbers" in options else random.Random(seed).choice(options)
    problem, gold, text = renamed(MATERIAL.problem, MATERIAL.gold, MATERIAL.texts[0], rng)
    old = NUMBER.findall(MATERIAL.problem + MATERIAL.texts[0])
    new = NUMBER.findall(problem + text)
    assert len(new) == len(old)
    assert all((a == b) == (c == d) for a, c in zip(old, new, strict=True) for b, d in zip(old, new, strict=True))


@given(st.integers(-9999, 9999), seeds)
def test_a_near_answer_is_still_an_answer(value, seed):
    found = near(str(value), random.Random(seed))
    assert re.fullmatch(r"-?\d+", found)


@given(seeds)
def test_altered_segments_can_be_written_and_read(seed):
    rng = random.Random(seed)
    item = alter(MATERIAL, rng, WORDS)
    assert item.gold.strip() and len(item.segment_text) < 2000
    short = shorten(item, rng)
    assert short.segment_text in item.segment_text and short.segment_text.count("\n") <= 1
    assert short.gold == item.gold and item.problem.startswith(short.problem)


WORDS = sorted(set(small_tokenizer().get_vocab()) - set(small_tokenizer().get_added_vocab()))


def test_the_same_seed_gives_the_same_item():
    assert alter(MATERIAL, random.Random(3), WORDS) == alter(MATERIAL, random.Random(3), WORDS)


def test_both_verdicts_are_common_and_every_way_to_be_wrong_occurs():
    rng = random.Random(0)
    items = [alter(MATERIAL, rng, WORDS) for _ in range(600)]
    share = sum(map(yes, items)) / len(items)
    assert 0.3 < share < 0.7
    stated = [item for item in items if "the answer is" in item.segment_text]
    assert any(not yes(item) and item.gold in item.segment_text for item in stated)
    assert any("aybe" in item.segment_text for item in items) and any("?" in item.segment_text for item in items)


@pytest.mark.parametrize(("text", "label"), [("So the answer is b, c.", True), ("So the answer is b, d.", False)])
def test_a_list_is_an_answer_like_any_other(text, label):
    assert yes(JudgeItem("What is 4 + 3?", "b, c", text)) is label
