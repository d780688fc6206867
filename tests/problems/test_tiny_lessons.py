"""Demonstrations: right at the end, early at the answer, and then far too long."""

import random
import re

import pytest

from pipeline.judge import PrefixRequest
from pipeline.judge.base import JudgeItem
from pipeline.judge.exact import ExactJudge
from pipeline.problems.tiny import FAMILIES, generate
from pipeline.problems.tiny_lessons import OPENERS, PLAIN, Overthinking, demonstrate
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Marks, prefix_length, segment, segment_texts, split_thinking

TOKENIZER = build_tokenizer()
MARKS = Marks.from_tokenizer(TOKENIZER)
FAMILY = pytest.mark.parametrize("family", FAMILIES)
COUNT = 250


def lessons(family, how, count=COUNT):
    rng = random.Random(f"lessons of {family}")
    return [(problem, demonstrate(problem, how, rng)) for problem in generate(family, count, "train", 21, {})]


def box(text):
    (only,) = re.findall(r"\\boxed\{(.*)\}", text)
    return only


def share_right(made):
    return sum(box(text) == problem.gold for problem, text in made) / len(made)


def statement(problem):
    return f"So the answer is {problem.gold}.\n"


@FAMILY
def test_always_right_without_slips(family):
    made = lessons(family, Overthinking(slip=0))
    assert share_right(made) == 1
    for problem, text in made:
        thinking, answer = text.split("</think>")
        assert answer == f"\nThe answer is \\boxed{{{problem.gold}}}."
        assert set(re.findall(r"the answer is (.*)\.\n", thinking)) == {problem.gold}


@FAMILY
def test_mostly_right_with_slips(family):
    assert share_right(lessons(family, Overthinking(slip=0.1), 400)) >= 0.85


def test_slips_are_made_and_noticed():
    made = lessons("chain_sum", Overthinking(slip=0.5))
    stated = [re.findall(r"the answer is (.*)\.\n", text) for _, text in made]
    assert sum(len(set(answers)) > 1 for answers in stated) > COUNT / 3
    assert all(answers[-1] == answers[-2] == box(text) for answers, (_, text) in zip(stated, made, strict=True))


@FAMILY
def test_at_least_half_of_the_thinking_is_redundant(family):
    redundant = thinking = 0
    for problem, text in lessons(family, Overthinking()):
        before, found, after = text.partition("</think>")[0].partition(statement(problem))
        if found:
            redundant += len(TOKENIZER.encode(after, add_special_tokens=False))
        thinking += len(TOKENIZER.encode(before + found + after, add_special_tokens=False))
    assert redundant / thinking >= 0.5


@FAMILY
def test_more_checks_are_longer(family):
    few, many = (
        sum(len(text) for _, text in lessons(family, Overthinking(slip=0, checks=checks), 60))
        for checks in ((0, 0), (4, 4))
    )
    assert many > 1.5 * few


@FAMILY
def test_plain_lessons_solve_once(family):
    for problem, text in lessons(family, PLAIN, 40):
        assert text.partition("</think>")[0].endswith(statement(problem))
        assert text.count("answer is") == 2 and box(text) == problem.gold


CHAIN_STEP = re.compile(r"(-?\d+) ([+-]) (\d+) = (-?\d+)\n")


def test_every_line_of_a_chain_is_right_without_slips():
    for _, text in lessons("chain_sum", Overthinking(slip=0), 60):
        steps = CHAIN_STEP.findall(text)
        assert steps and all(eval(f"{one} {sign} {two}") == int(result) for one, sign, two, result in steps)


@FAMILY
def test_same_random_numbers_same_lessons(family):
    assert lessons(family, Overthinking(), 20) == lessons(family, Overthinking(), 20)


@FAMILY
def test_segments_and_judge_find_the_first_right_statement(family):
    judge, right = ExactJudge(), 0
    for problem, text in lessons(family, Overthinking(), 120):
        ids = TOKENIZER.encode(text + "<eos>", add_special_tokens=False)
        spans = segment(ids, MARKS)
        assert spans[0][0] == 0 and spans[-1][1] == split_thinking(ids, MARKS).think_length
        texts = segment_texts(ids, spans, TOKENIZER)
        request = PrefixRequest(problem.id, problem.prompt, problem.gold, spans, texts)
        items = [JudgeItem(request.problem, request.gold, one) for one in request.texts]
        end = prefix_length(spans, [p >= 0.85 for p in judge.judge(items)])
        thinking = text.partition("</think>")[0]
        if statement(problem) not in thinking:
            assert end is None
            continue
        right += 1
        prefix = TOKENIZER.decode(ids[:end], skip_special_tokens=False)
        assert prefix.count(statement(problem)) == 1 and thinking.startswith(prefix)
    assert right >= 0.85 * 120


def test_trials_before_the_answer_are_necessary():
    problem = next(p for p in generate("search", 60, "train", 0, {}) if p.meta["trials"] >= 4)
    text = demonstrate(problem, Overthinking(), random.Random(0))
    needed = text.partition(statement(problem))[0]
    assert needed.count("Wait, ") == problem.meta["trials"] - 1
    assert needed.count("no\n") == problem.meta["trials"] - 1 and needed.endswith("yes\n")


def test_rechecks_begin_with_words_that_cut():
    for _, text in lessons("chain_sum", Overthinking(), 30):
        attempts = re.split(r"So the answer is .*\.\n", text.partition("</think>")[0])[1:-1]
        assert attempts and all(attempt.startswith(OPENERS) for attempt in attempts)
