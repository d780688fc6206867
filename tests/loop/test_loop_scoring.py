"""From scored groups to the learner's token streams, by hand."""

import numpy as np
import pytest

from pipeline.loop.scoring import outcome_of, to_streams, token_signals
from pipeline.rewards import Outcome
from pipeline.rewards.decs import Decs
from pipeline.rewards.grpo import Grpo
from tests.loop.builders import group, scored


def test_outcome_sees_lengths_and_correctness_alone():
    assert outcome_of(scored(True, 6, think=4, prefix=2)) == Outcome(6, True, 2, 4)
    assert outcome_of(scored(False, 6, think=6)) == Outcome(6, False, None, 6)
    with pytest.raises(ValueError, match="without a verdict"):
        outcome_of(scored(None))


def test_signals_of_a_mixed_group():
    made = group(scored(True, 6, think=4, prefix=2), scored(False, 4, think=3))
    rewards, advantages = token_signals(made, Decs(), max_length=12)
    assert np.allclose(rewards, [[1.1, 1.1, 1.05, 1.05, 1.1, 1.1], [0.0] * 6])
    half = np.sqrt(0.5)  # two values differ from their mean by d, and their sample deviation is d * sqrt(2)
    assert np.allclose(advantages, [[half] * 6, [-half] * 4 + [0, 0]], atol=1e-5)


def test_unknown_traces_do_not_move_the_others():
    known = [scored(True, 5, think=4, prefix=4), scored(False, 5)]
    with_unknown = group(known[0], scored(None, 9), known[1])
    rewards, advantages = token_signals(with_unknown, Decs(), max_length=12)
    plain_rewards, plain_advantages = token_signals(group(*known), Decs(), max_length=12)
    assert rewards.shape == (3, 9) and not rewards[1].any() and not advantages[1].any()
    assert np.array_equal(rewards[[0, 2], :5], plain_rewards)
    assert np.array_equal(advantages[[0, 2], :5], plain_advantages)


def test_fewer_than_two_verdicts_push_nothing():
    rewards, advantages = token_signals(group(scored(True), scored(None)), Decs(), max_length=12)
    assert not rewards.any() and not advantages.any()


def test_streams_row_by_row():
    groups = [
        group(scored(True, 3, think=2, prompt=2), scored(None, 5, first=50), issue="0/a"),
        group(scored(False, 2, think=1, problem="b", version=4), scored(True, 2, think=1, problem="b"), issue="0/b"),
    ]
    signals = [token_signals(g, Grpo(), 12) for g in groups]
    streams = to_streams(groups, [advantages for _, advantages in signals])
    assert len(streams) == 4 and streams.prompt_length == (2, 3, 3, 3)
    assert streams.input_ids[0].tolist() == [0, 1, 10, 11, 12]
    assert [len(row) for row in streams.advantages] == [3, 5, 2, 2]
    assert [bool(row.all()) for row in streams.mask] == [True, False, True, True]
    assert streams.tokens == 3 + 2 + 2
    assert np.allclose(streams.behaviour_logprobs[0], [0.0, -0.1, -0.2])
    assert streams.problem_id == ("p", "p", "b", "b")
    assert [spans[0].version for spans in streams.versions] == [0, 0, 4, 0]
    assert np.allclose([row[0] for row in streams.advantages[2:]], [-np.sqrt(0.5), np.sqrt(0.5)], atol=1e-5)


def test_groups_and_advantages_must_match():
    with pytest.raises(ValueError):
        to_streams([group(scored(True), scored(False))], [])
