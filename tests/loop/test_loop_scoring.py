"""From scored groups to the learner's token streams, by hand."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pipeline.learner import rank_batches
from pipeline.loop.scoring import outcome_of, to_streams, token_signals
from pipeline.rewards import Outcome, Steering
from pipeline.rewards.decs import Decs
from pipeline.rewards.grpo import Grpo
from pipeline.rewards.lc_r1 import LcR1
from pipeline.rewards.tlmre import Tlmre
from pipeline.traces import VersionSpan
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


def test_groups_of_one_batch_do_not_influence_each_other():
    """All right, and one right of four, with spreads of 0 and 0.5."""
    groups = [
        group(*(scored(True, 2, think=1) for _ in range(4)), issue="0/a"),
        group(*(scored(i == 3, 2, think=1, problem="b") for i in range(4)), issue="0/b"),
    ]
    streams = to_streams(groups, [token_signals(made, Grpo(), 12)[1] for made in groups])
    first = [row[0] for row in streams.advantages]
    assert first[:4] == [0, 0, 0, 0] and np.allclose(first[4:], [-0.5, -0.5, -0.5, 1.5], atol=1e-4)


def test_groups_and_advantages_must_match():
    with pytest.raises(ValueError):
        to_streams([group(scored(True), scored(False))], [])


def test_a_strategy_brings_its_own_baseline():
    made = group(scored(True, 4, think=3), scored(False, 3, think=3), scored(True, 4, think=3))
    rewards, advantages = token_signals(made, Tlmre(alpha=0.5), max_length=12)
    assert rewards[:, 0].tolist() == [0.75, 0, 0.75]
    assert advantages[:, 0].tolist() == [0.375, -0.75, 0.375]  # against the mean of the two others


def test_what_the_outcome_is_told_of_how_a_sample_began():
    start = Steering(note="n", target_length=7, no_think=True)
    assert outcome_of(scored(True, 6, think=0), start) == Outcome(6, True, None, 0, target_length=7, no_think=True)


def test_cut_thinking_is_not_there_and_what_follows_has_no_behaviour_probability():
    spans = (VersionSpan(3, 0, 3), VersionSpan(4, 3, 7))
    cut = scored(True, 7, think=5, prefix=2, prompt=2, version=spans)
    made = group(cut, scored(False, 5), scored(None, 6))
    rewards, advantages = token_signals(made, LcR1(), max_length=12)
    # 4 and 5 tokens are left; closed + right + length: 2 + 0 and 1 - 1/4; mean 1.375; 3 of 5 thinking tokens redundant
    expected = np.array([0.625, 0.625, 0, 0, 0, 0.625 + 0.6, 0.625])
    assert np.allclose(advantages[0], expected) and np.allclose(advantages[1], [-0.625] * 5 + [0, 0])
    assert not advantages[2].any()
    streams = to_streams([made], [advantages], LcR1())
    assert streams.input_ids[0].tolist() == [0, 1, 10, 11, 15, 16] and streams.prompt_length[0] == 2
    assert np.allclose(streams.advantages[0], [0.625, 0.625, 1.225, 0.625])
    assert streams.drawn[0].tolist() == [True, True, False, False]
    assert np.allclose(streams.behaviour_logprobs[0], [0, -0.1, np.nan, np.nan], equal_nan=True)
    assert streams.versions[0] == (VersionSpan(3, 0, 2), VersionSpan(4, 2, 4))
    assert streams.mask[0].all() and streams.tokens == 4 + 5
    assert [len(ids) for ids in streams.input_ids] == [2 + 4, 3 + 5, 3 + 6]
    assert streams.drawn[1].all() and np.isfinite(streams.behaviour_logprobs[1]).all()


def test_nothing_redundant_changes_nothing():
    made = group(scored(True, 6, think=4, prefix=4), scored(True, 6, think=4))
    advantages = token_signals(made, LcR1(), 12)[1]
    whole, plain = to_streams([made], [advantages], LcR1()), to_streams([made], [advantages])
    assert whole.digest() == plain.digest() and all(flags.all() for flags in whole.drawn)


def test_steered_samples_have_the_probability_of_the_mixture_they_came_from():
    free, skip = Steering(share=0.75), Steering(no_think=True, share=0.25)
    made = replace(group(scored(True, 4, think=3), scored(True, 4, think=0)), starts=(free, skip))
    streams = to_streams([made], [np.zeros((2, 4))])
    assert np.allclose(streams.behaviour_logprobs[0], [np.log(0.75), -0.1, -0.2, -0.3])
    assert np.allclose(streams.behaviour_logprobs[1], [np.log(0.25), -0.1, -0.2, -0.3])
    assert [flags.tolist() for flags in streams.drawn] == [[False, True, True, True]] * 2
    always = replace(made, starts=(Steering(no_think=True),) * 2, traces=(made.traces[1],) * 2)
    streams = to_streams([always], [np.zeros((2, 4))])
    assert streams.behaviour_logprobs[0][0] == 0 and streams.drawn[0].tolist() == [False, True, True, True]


@pytest.mark.parametrize("strategy", [Grpo(), Decs(), LcR1()])
def test_an_empty_response_is_a_row_without_tokens(strategy):
    made = group(scored(True, 4, think=3), scored(False, 0, think=0))
    advantages = token_signals(made, strategy, 12)[1]
    streams = to_streams([made], [advantages], strategy)
    assert not advantages[1].any() and np.isfinite(advantages).all()
    assert streams.lengths == (3 + 4, 3) and streams.tokens == 4
    (batch,) = rank_batches(streams, batch_id="b", ranks=1, max_tokens=16)
    assert batch.global_tokens == 4


@dataclass(frozen=True)
class Crossed(Grpo):
    def kept_spans(self, outcome):
        return [(2, 4), (1, 3)]


def test_spans_out_of_order_are_an_error():
    made = group(scored(True, 6), scored(False, 6))
    with pytest.raises(ValueError, match="do not run in order through a response of 6 tokens"):
        token_signals(made, Crossed(), 12)
