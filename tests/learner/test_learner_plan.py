"""Token streams and the plan: every row once, equal numbers of micro-batches, balanced ranks."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.learner import plan_micro_batches, rank_batches, split_rows

_spec = importlib.util.spec_from_file_location("tiny_llama", Path(__file__).with_name("tiny_llama.py"))
tiny_llama = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_llama)

LENGTHS = st.lists(st.integers(1, 64), max_size=40)


def padded_tokens(lengths, rows):
    """Tokens of a right-padded micro-batch of these rows, padding included."""
    return len(rows) * max((lengths[row] for row in rows), default=0)


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(1, 5), st.integers(64, 300))
def test_every_row_once_within_budget_and_equal_counts(lengths, ranks, budget):
    plan = plan_micro_batches(lengths, ranks, budget)
    assert sorted(row for rank in plan for micro in rank for row in micro) == list(range(len(lengths)))
    assert len(plan) == ranks and len({len(micros) for micros in plan}) == 1
    assert all(padded_tokens(lengths, micro) <= budget for micros in plan for micro in micros)
    assert plan == plan_micro_batches(lengths, ranks, budget)


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(1, 5), st.integers(64, 300))
def test_ranks_are_balanced(lengths, ranks, budget):
    dealt = [[row for micro in micros for row in micro] for micros in plan_micro_batches(lengths, ranks, budget)]
    tokens = [sum(lengths[row] for row in rows) for rows in dealt]
    assert max(tokens) - min(tokens) <= max(lengths, default=0)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@settings(deadline=None, max_examples=60)
@given(LENGTHS.filter(len), st.integers(1, 5))
def test_no_rank_needs_two_more_micro_batches_than_its_tokens_do(lengths, ranks):
    plan = plan_micro_batches(lengths, ranks, 64)
    for micros in plan:
        full = [micro for micro in micros if micro]
        assert all(padded_tokens(lengths, left) + lengths[left[0]] > 64 for left in full[:-1]), (
            "a micro-batch was closed although the next row would have fitted"
        )


def test_plan_by_hand():
    assert plan_micro_batches([3, 9, 1, 5], 2, 10) == [[[1], [2]], [[3, 0], []]]
    assert plan_micro_batches([4], 3, 10) == [[[0]], [[]], [[]]]
    assert plan_micro_batches([], 2, 10) == [[], []]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [(14, [[3, 3, 1], [3, 3, 1]]), (7, [[3, 0], [3, 1]]), (2, [[1], [1]]), (1, [[1], [0]]), (0, [[], []])],
)
def test_tails_of_a_batch_over_two_ranks(rows, counts):
    """Seven problems in pairs, seven alone, one pair, one row and none, three rows to a micro-batch."""
    plan = plan_micro_batches([5] * rows, 2, 15)
    assert [[len(micro) for micro in micros] for micros in plan] == counts
    assert sorted(row for micros in plan for micro in micros for row in micro) == list(range(rows))


def test_a_row_that_fits_nowhere_is_refused():
    with pytest.raises(UserError, match="11 tokens does not fit into learner.micro_batch_tokens=10"):
        plan_micro_batches([3, 11], 2, 10)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 30), st.integers(1, 6))
def test_split_rows(rows, parts):
    runs = split_rows(rows, parts)
    assert [row for run in runs for row in run] == list(range(rows))
    assert len(runs) == min(rows, parts) and all(runs)
    assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 3), st.integers(0, 5))
def test_rank_batches_keep_tokens_and_denominators(rows, ranks, minis, seed):
    streams = tiny_llama.make_streams(seed, rows=rows)
    batches = rank_batches(streams, batch_id="b", ranks=ranks, max_tokens=32, mini_batches=minis)
    assert len({(b.batch_id, b.digest, b.shape, b.global_tokens) for b in batches}) == 1
    assert batches[0].global_tokens == streams.tokens
    for index in range(len(batches[0].mini_batches)):
        held = sum(micro.tokens for b in batches for micro in b.mini_batches[index].micro_batches)
        assert held == batches[0].mini_batches[index].global_tokens
    micros = [micro for b in batches for mini in b.mini_batches for micro in mini.micro_batches]
    seen = sorted(name for micro in micros for name in micro.problem_id)
    assert seen == sorted(streams.problem_id)


def test_a_batch_without_rows_is_refused():
    with pytest.raises(UserError, match="batch 'b7' has no rows"):
        rank_batches(tiny_llama.make_streams(0).take([]), batch_id="b7", ranks=2, max_tokens=64)


def test_streams_refuse_what_would_poison_the_loss():
    streams = tiny_llama.make_streams(0)
    row = next(i for i, mask in enumerate(streams.mask) if mask.any() and not mask.all())
    for place, allowed in ((int(np.argmin(streams.mask[row])), True), (int(np.argmax(streams.mask[row])), False)):
        advantages = list(streams.advantages)
        advantages[row] = advantages[row].copy()
        advantages[row][place] = np.nan
        if allowed:
            same = dataclasses.replace(streams, advantages=tuple(advantages))
            assert same.digest() == streams.digest()
        else:
            with pytest.raises(ValueError, match=f"token stream {row} .*advantages is not finite"):
                dataclasses.replace(streams, advantages=tuple(advantages))
    with pytest.raises(ValueError, match="mask has shape"):
        dataclasses.replace(streams, mask=tuple(mask[:-1] for mask in streams.mask))
    with pytest.raises(ValueError, match="mask has type"):
        dataclasses.replace(streams, mask=tuple(mask.astype(np.int64) for mask in streams.mask))
    with pytest.raises(ValueError, match="7 rows but 6 of problem_id"):
        dataclasses.replace(streams, problem_id=streams.problem_id[1:])
    with pytest.raises(ValueError, match="does not fit"):
        dataclasses.replace(streams, prompt_length=(0, *streams.prompt_length[1:]))


def test_only_a_token_that_was_not_drawn_may_lack_a_behaviour_probability():
    streams = tiny_llama.make_streams(0)
    place = int(np.argmax(streams.mask[1]))
    for value, allowed in ((np.nan, True), (np.inf, False)):
        behaviour = [values.copy() for values in streams.behaviour_logprobs]
        behaviour[1][place] = value
        with pytest.raises(ValueError, match="token stream 1 .*behaviour_logprobs is not finite"):
            dataclasses.replace(streams, behaviour_logprobs=tuple(behaviour))
        drawn = [flags.copy() for flags in streams.drawn]
        drawn[1][place] = False
        if allowed:
            made = dataclasses.replace(streams, behaviour_logprobs=tuple(behaviour), drawn=tuple(drawn))
            assert made.digest() != streams.digest() and made.take([1]).drawn[0].tolist() == drawn[1].tolist()
        else:
            with pytest.raises(ValueError, match="token stream 1 .*behaviour_logprobs is not finite"):
                dataclasses.replace(streams, behaviour_logprobs=tuple(behaviour), drawn=tuple(drawn))
    assert all(flags.all() for flags in streams.drawn)


def test_digest_sees_every_value_the_loss_reads():
    streams = tiny_llama.make_streams(3)
    longer = tuple(values + np.float32(0.5) for values in streams.advantages)
    assert dataclasses.replace(streams, advantages=longer).digest() != streams.digest()
    assert streams.take([1, 0]).digest() != streams.take([0, 1]).digest()


def test_building_batches_needs_no_torch():
    code = "import sys, pipeline.learner; assert not {'torch', 'ray', 'deepspeed'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])
