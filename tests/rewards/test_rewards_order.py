"""What holds for every strategy, and which of them never rank a wrong trace above a right one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.rewards import STRATEGIES, Outcome, baseline_of, build, group_advantages

WIDTH, LONGEST = 24, 40

# Strategies that promise it, with options under which lengths as short as these make a difference.
RIGHT_FIRST = {
    "adaptthink": {"bonus": 0.99},
    "alp": {"beta": 0.99},
    "dapo_overlong": {"limit": 16, "cache": 12},
    "decs": {},
    "grpo": {},
    "kimi": {"weight": 1.99},
    "l1_max": {"alpha": 0.1},
    "laser": {"target": 10},
    "laser_d": {"easy": 5, "medium": 10, "hard": 15},
    "lc_r1": {},  # in padding, hence by the sequence's reward: at the tag of a right trace -1 may come on top
    "length_penalty": {"gamma": 0.99 / LONGEST},  # below 1 for the longest response
    "thinkprune": {"budget": 10},
    "tlmre": {"alpha": 0.99},
}

# Strategies that do not, with the reason and a group in which the wrong trace, the last one, comes first.
WRONG_FIRST = {
    "l1_exact": (
        "a wrong trace pays for its distance from the budget and nothing else",
        {"alpha": 0.2},
        [Outcome(20, True, None, 18, target_length=4), Outcome(4, False, None, 2, target_length=4)],
    ),
    "shorter_better": (
        "a right trace pays for its distance from the shortest right one without a bound",
        {"alpha": 2.0, "beta": 0.2},
        [Outcome(20, True, None, 18), Outcome(4, True, None, 2), Outcome(4, False, None, 2)],
    ),
}


@st.composite
def outcomes(draw):
    """Traces as the scorer makes them: what is right has closed its thinking and answered."""
    right = draw(st.booleans())
    length = draw(st.integers(2, 20))
    think = draw(st.integers(0, length - 2) if right else st.integers(0, length))
    prefix = draw(st.none() | st.integers(1, think)) if right and think else None
    return Outcome(length, right, prefix, think, target_length=draw(st.integers(1, 30)), no_think=draw(st.booleans()))


groups = st.lists(outcomes(), min_size=2, max_size=8)
names = st.sampled_from(sorted(STRATEGIES))


def strategy_of(name):
    return build({"name": name, **(RIGHT_FIRST[name] if name in RIGHT_FIRST else WRONG_FIRST[name][1])})


def advantages_of(strategy, group, width=WIDTH):
    rewards = strategy.token_rewards(group, width, LONGEST)
    return group_advantages(rewards, [o.length for o in group], baseline_of(strategy))


def test_every_strategy_says_whether_it_promises():
    assert set(RIGHT_FIRST) | set(WRONG_FIRST) == set(STRATEGIES) and not set(RIGHT_FIRST) & set(WRONG_FIRST)


@given(groups, st.sampled_from(sorted(RIGHT_FIRST)))
def test_no_wrong_trace_ranks_above_a_right_one(group, name):
    rewards = strategy_of(name).token_rewards(group, WIDTH, LONGEST)
    right = np.array([o.correct for o in group])
    if name == "lc_r1":
        rewards = rewards[:, -1:]
    if right.any() and not right.all():
        assert rewards[right].min() >= rewards[~right].max()


@pytest.mark.parametrize("name", WRONG_FIRST)
def test_where_the_promise_is_not_made_it_does_not_hold(name):
    _, _, group = WRONG_FIRST[name]
    rewards = strategy_of(name).token_rewards(group, WIDTH, LONGEST)[:, 0]
    assert rewards[-1] > rewards[0]


def test_the_bounds_of_the_promises_are_where_they_are_said_to_be():
    long_right, short_wrong = Outcome(20, True, None, 18), Outcome(2, False, None, 2)
    penalty = build({"name": "length_penalty", "gamma": 1.1 / 20}).token_rewards([long_right, short_wrong], 20, 20)
    assert penalty[0, 0] < penalty[1, 0]
    lc_r1 = build({"name": "lc_r1", "length_weight": 2.0})
    sequence = lc_r1.token_rewards([Outcome(20, True, 18, 18), Outcome(2, False, None, 1)], WIDTH, LONGEST)[:, -1]
    assert sequence[0] < sequence[1]


@given(groups, names)
def test_rewards_are_finite_numbers_for_every_token(group, name):
    rewards = strategy_of(name).token_rewards(group, WIDTH, LONGEST)
    assert rewards.shape == (len(group), WIDTH) and rewards.dtype == np.float64 and np.isfinite(rewards).all()


@given(groups, names, st.randoms(use_true_random=False))
def test_order_within_the_group_does_not_matter(group, name, random):
    order = list(range(len(group)))
    random.shuffle(order)
    shuffled = advantages_of(strategy_of(name), [group[i] for i in order])
    np.testing.assert_allclose(shuffled, advantages_of(strategy_of(name), group)[order], atol=1e-9)


@given(outcomes(), names, st.integers(2, 16))
def test_alike_traces_give_exactly_nothing_to_learn(outcome, name, group):
    """A group of equals has no difference to push on; the bonuses that stand beside the baseline are all there is."""
    advantages = advantages_of(strategy_of(name), [outcome] * group)
    if name == "lc_r1" and outcome.correct:
        advantages = np.delete(advantages, outcome.think_length, axis=1)
    bonus = 0.99 if name == "adaptthink" and outcome.no_think else 0.0
    np.testing.assert_array_equal(advantages[:, : outcome.length], bonus)


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_empty_response_gets_nothing_and_harms_nobody(name):
    group = [Outcome(6, True, 2, 4, target_length=5), Outcome(0, False, None, 0, target_length=5)]
    advantages = advantages_of(strategy_of(name), group)
    assert not advantages[1].any() and np.isfinite(advantages).all() and advantages[0, :6].any()


@given(groups, names, st.integers(0, 20))
def test_padding_past_the_longest_trace_changes_nothing(group, name, extra):
    narrow = max(o.length for o in group)
    wide = advantages_of(strategy_of(name), group, narrow + extra)
    np.testing.assert_array_equal(wide[:, :narrow], advantages_of(strategy_of(name), group, narrow))
    assert not wide[:, narrow:].any()
