"""From traces to questions: cutting, splitting by problem, questions beside another answer."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import load_config
from pipeline.judge import JudgeItem
from pipeline.judge.corpus import Cut, cut_traces, mismatched, split_by_problem
from pipeline.judge.labelling import Labelled
from pipeline.judge.lessons import make_draw, teaching_plan, write_lessons
from pipeline.judge.prompt import JudgePrompt
from pipeline.judge.vocabulary import small_tokenizer
from pipeline.problems import Problem
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Marks, Stop, Trace

TINY = build_tokenizer()


def problem(number, gold="7"):
    return Problem(f"p{number}", f"What is {number}?", gold, "tiny/chain_sum")


def trace(name, text):
    ids = tuple(TINY.encode(text, add_special_tokens=False))
    return Trace(name, 0, (1,), ids, (0.0,) * len(ids), (), Stop.EOS, text)


def test_traces_are_cut_and_graded():
    right = "3 + 4 = 7\nSo the answer is 7.\nWait, let me check that again.\n3 + 4 = 7\nSo the answer is 7.\n"
    traces = [
        trace("p1", right + "</think>\nThe answer is \\boxed{7}."),
        trace("p1", "So the answer is 8.\n</think>\nThe answer is \\boxed{8}."),
        trace("p1", "3 + 4 = 7\n"),  # cut off while thinking
    ]
    found, left_out = cut_traces(traces, {"p1": problem(1)}, TINY, Marks.from_tokenizer(TINY))
    assert [cut.right for cut in found] == [True, False] and left_out == 1
    assert [len(cut.texts) for cut in found] == [2, 1]
    assert found[0].items()[0] == JudgeItem("What is 1?", "7", "3 + 4 = 7\nSo the answer is 7.")
    assert found[0].tokens == len(TINY.encode(right, add_special_tokens=False))


@given(st.lists(st.integers(0, 50), max_size=60), st.floats(0, 1))
def test_a_problem_is_on_one_side_only(numbers, share):
    cuts = [Cut(problem(n), True, (f"{i}",), 1) for i, n in enumerate(numbers)]
    kept, apart = split_by_problem(cuts, share)
    assert sorted([*kept, *apart], key=lambda cut: int(cut.texts[0])) == cuts
    assert not {cut.problem.prompt for cut in kept} & {cut.problem.prompt for cut in apart}


def test_about_the_share_asked_for_is_set_aside():
    cuts = [Cut(problem(n), True, ("x",), 1) for n in range(2000)]
    assert len(split_by_problem(cuts, 0.1)[1]) == pytest.approx(200, abs=50)


def test_mismatched_questions_have_another_answer():
    cuts = [Cut(problem(n, str(n % 3)), True, (f"{n % 3}",), 1) for n in range(9)]
    found = mismatched(cuts, random.Random(0), 50)
    assert len(found) == 50 and all(item.gold != item.segment_text for item in found)
    assert mismatched([Cut(problem(1), True, ("x",), 1)] * 3, random.Random(0), 5) == []


def test_lessons_are_drawn_as_they_were_written(tmp_path):
    prompt = JudgePrompt(small_tokenizer())
    items = [JudgeItem("q", str(i), f"So the answer is {i}.") for i in range(10)] + [JudgeItem("q", "1", "no " * 99)]
    short = Labelled(items[:3], [True, False, False], 0)
    whole = Labelled(items, [i % 5 == 0 for i in range(11)], 0)
    file = tmp_path / "data" / "lessons.npz"
    assert write_lessons(file, prompt, short, whole, max_tokens=50) == 1
    draw, rng = make_draw(str(file), load_config(None, [])), random.Random(0)
    no, yes = prompt.choices
    ids = {tuple(row): i for i, row in enumerate(prompt.ids(items))}
    drawn = [draw(rng, False) for _ in range(400)]
    seen = [(ids[tuple(row)], answer) for row, answer in drawn]
    assert {i for i, _ in seen} == set(range(10)) and all(answer == [yes if i % 5 == 0 else no] for i, answer in seen)
    assert np.mean([answer == [yes] for _, answer in seen]) == pytest.approx(0.5, abs=0.1)  # though only two are right
    assert {ids[tuple(draw(rng, True)[0])] for _ in range(50)} == {0, 1, 2}


def test_the_plan_has_the_short_lessons_first():
    cfg = load_config(None, ["judge_training.steps=100", "judge_training.short_steps=40"])
    plan = teaching_plan(cfg.judge_training)
    assert (plan.steps, plan.plain_steps, plan.plain_tokens_per_step) == (100, 40, plan.tokens_per_step // 2)
    assert plan.lr == plan.overthink_lr
