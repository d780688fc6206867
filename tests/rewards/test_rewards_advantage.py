"""Group normalisation: degenerate groups, and properties that hold for every group."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.rewards import Outcome, build, group_advantages, position_advantages


def column(values):
    """Advantages of one-token responses, from float32 as a trainer would hold them."""
    return group_advantages(torch.tensor(values, dtype=torch.float32)[:, None], [1] * len(values))[:, 0]


@pytest.mark.parametrize("values", [[0.45] * 7, [0.1] * 8, [1.0] * 4, [0.0] * 3, [1.1] * 16, [1.1] * 12])
def test_equal_rewards_give_exactly_zero(values):
    assert (column(values) == 0.0).all()


def test_one_right_of_four_uses_the_sample_spread():
    np.testing.assert_allclose(column([1, 0, 0, 0]), [1.5, -0.5, -0.5, -0.5], atol=1e-4)


def test_seven_against_one():
    np.testing.assert_allclose(column([0.45] * 7 + [0.95]), [-0.35355] * 7 + [2.47487], atol=1e-4)


@pytest.mark.parametrize("baseline", ["group_std", "group_mean", "leave_one_out"])
@pytest.mark.parametrize("values", [[0.45] * 7, [0.1] * 8, [1.1] * 16, [1 / 3] * 12])
def test_equal_rewards_give_exactly_zero_under_every_baseline(values, baseline):
    rewards = np.array(values, dtype=np.float32)[:, None]
    assert (group_advantages(rewards, [1] * len(values), baseline) == 0.0).all()


@pytest.mark.parametrize(
    ("baseline", "few", "many"),
    [
        ("group_std", -0.35355, 2.47487),
        ("group_mean", -0.5 / 8, 0.5 * 7 / 8),  # the mean is 0.45 + 0.5 / 8
        ("leave_one_out", -0.5 / 7, 0.5),  # the others' mean is 0.45 + 0.5 / 7, or 0.45
        ("none", 0.45, 0.95),
    ],
)
def test_seven_against_one_under_every_baseline(baseline, few, many):
    advantages = group_advantages(np.array([[0.45]] * 7 + [[0.95]]), [1] * 8, baseline)
    np.testing.assert_allclose(advantages[:, 0], [few] * 7 + [many], atol=1e-4)


@pytest.mark.parametrize(
    ("baseline", "one", "others"),
    [
        ("group_std", 1.5, -0.5),  # over the sample spread of 0.5, not the population's 0.433
        ("group_mean", 0.75, -0.25),
        ("leave_one_out", 1.0, -1 / 3),
        ("none", 1.0, 0.0),
    ],
)
def test_one_right_of_four_under_every_baseline(baseline, one, others):
    advantages = group_advantages(np.array([[1.0], [0], [0], [0]], np.float32), [1] * 4, baseline)
    np.testing.assert_allclose(advantages[:, 0], [one] + [others] * 3, atol=1e-4)


@pytest.mark.parametrize("baseline", ["group_std", "group_mean", "leave_one_out", "none"])
def test_a_single_sample_is_refused_under_every_baseline(baseline):
    with pytest.raises(UserError, match="rollout.group_size"):
        group_advantages(np.ones((1, 1), np.float32), [1], baseline)


def test_an_unknown_baseline_is_refused():
    with pytest.raises(UserError, match="'group_men' is unknown; did you mean 'group_mean'"):
        group_advantages(np.ones((2, 1)), [1, 1], "group_men")


@pytest.mark.parametrize("group", [0, 1])
def test_a_group_without_a_baseline_is_refused(group):
    with pytest.raises(UserError, match="rollout.group_size"):
        group_advantages(np.ones((group, 3)), [3] * group)


def test_groups_do_not_influence_each_other():
    assert (column([1, 1, 1, 1]) == 0).all()
    np.testing.assert_allclose(column([0, 0, 0, 1]), [-0.5, -0.5, -0.5, 1.5], atol=1e-4)


def test_an_empty_response_gets_no_advantage_but_counts_in_the_baseline():
    advantages = group_advantages(np.array([[10.0, 10.0], [0.0, 0.0]]), [0, 2])
    assert (advantages[0] == 0).all()
    np.testing.assert_allclose(advantages[1], -0.70711, atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="NaN or infinity"):
        group_advantages(np.array([[bad], [0.0]]), [1, 1])


@pytest.mark.parametrize("lengths", [[1], [1, 4], [-1, 2], [1, 2, 3]])
def test_wrong_lengths_are_refused(lengths):
    with pytest.raises(ValueError, match="lengths"):
        group_advantages(np.zeros((2, 3)), lengths)


def test_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"\[G, W\]"):
        group_advantages(np.zeros(3), [1])


EITHER = st.booleans()


@st.composite
def outcomes(draw, correct=EITHER):
    length = draw(st.integers(1, 20))
    think = draw(st.integers(0, length))
    prefix = draw(st.none() | st.integers(min(1, think), think))
    return Outcome(length, draw(correct), prefix, think)


groups = st.lists(outcomes(), min_size=2, max_size=8)
strategies = st.builds(build, st.sampled_from([{"name": "decs"}, {"name": "decs", "form": "paper"}, {"name": "grpo"}]))


def advantages_of(strategy, group, width=20, max_length=40):
    return group_advantages(strategy.token_rewards(group, width, max_length), [o.length for o in group])


@given(groups, strategies, st.randoms(use_true_random=False))
def test_order_within_the_group_does_not_matter(group, strategy, random):
    order = list(range(len(group)))
    random.shuffle(order)
    shuffled = advantages_of(strategy, [group[i] for i in order])
    np.testing.assert_allclose(shuffled, advantages_of(strategy, group)[order], atol=1e-9)


@given(groups, strategies)
def test_each_position_sums_to_zero_before_masking(group, strategy):
    columns = position_advantages(strategy.token_rewards(group, 20, 40)).sum(axis=0)
    np.testing.assert_allclose(columns, 0, atol=1e-6)


@given(groups, strategies, st.integers(0, 20))
def test_padding_past_the_longest_trace_changes_nothing(group, strategy, extra):
    narrow = max(o.length for o in group)
    wide = advantages_of(strategy, group, width=narrow + extra)
    np.testing.assert_array_equal(wide[:, :narrow], advantages_of(strategy, group, width=narrow))
    assert not wide[:, narrow:].any()


@settings(max_examples=50)
@given(st.lists(outcomes(correct=st.just(True)), min_size=2, max_size=8), st.floats(0.05, 0.9))
def test_the_size_of_the_gap_cancels_when_all_are_correct(group, gap):
    base = advantages_of(build({"name": "decs", "r_plus": 1.1, "r_zero": 1.0}), group)
    scaled = advantages_of(build({"name": "decs", "r_plus": 1.1, "r_zero": 1.1 - gap}), group)
    np.testing.assert_allclose(scaled, base, atol=2e-3)


@given(groups)
def test_necessary_tokens_of_easy_groups_are_never_punished(group):
    easy = [Outcome(o.length, True, o.prefix_length, o.think_length) for o in group]
    advantages = advantages_of(build({"name": "decs"}), easy)
    for row, o in zip(advantages, easy, strict=True):
        prefix = o.think_length if o.prefix_length is None else o.prefix_length
        assert (row[:prefix] >= 0).all() and (row[o.think_length :] >= 0).all()
