"""Every strategy on a small group, with the numbers worked out by hand."""

import math

import numpy as np
import pytest

from pipeline.config import UserError
from pipeline.rewards import Outcome, baseline_of, build, group_advantages

GROUP = [Outcome(4, True, None, 2), Outcome(8, True, None, 6), Outcome(6, False, None, 4)]


def rewards_of(config, outcomes=GROUP, max_length=10):
    """Sequence rewards [G] of a strategy whose tokens of a trace all get the same."""
    rewards = build(config).token_rewards(outcomes, max_length, max_length)
    assert rewards.dtype == np.float64 and (rewards == rewards[:, :1]).all()
    return rewards[:, 0].tolist()


def lengths(*pairs, **options):
    return [Outcome(length, right, None, length - 1 if right else length, **options) for length, right in pairs]


def test_length_penalty_costs_gamma_a_token():
    assert rewards_of({"name": "length_penalty", "gamma": 0.05}) == pytest.approx([1 - 0.2, 1 - 0.4, 0])


def test_gamma_cancels_where_all_are_right():
    outcomes = lengths((2, True), (4, True), (9, True))
    small, large = (
        group_advantages(build({"name": "length_penalty", "gamma": g}).token_rewards(outcomes, 9, 10), [2, 4, 9])
        for g in (0.01, 0.05)
    )
    np.testing.assert_allclose(small, large, atol=1e-3)


def test_thinkprune_counts_what_ends_within_the_budget():
    outcomes = lengths((5, True), (6, True), (7, True), (3, False))
    assert rewards_of({"name": "thinkprune", "budget": 6}, outcomes) == [1, 1, 0, 0]
    assert rewards_of({"name": "thinkprune"}, outcomes) == [1, 0, 0, 0]  # half of 10


def test_tlmre_measures_right_lengths_in_their_own_spread():
    # right lengths 4 and 8: mean 6, sample deviation sqrt(8), so both lie 1/sqrt(2) away
    up = 1 / (1 + math.exp(-1 / math.sqrt(2)))
    expected = [1 - 0.5 * (1 - up), 1 - 0.5 * up, 0]  # they add up to 1.5
    strategy = build({"name": "tlmre", "alpha": 0.5})
    assert rewards_of({"name": "tlmre", "alpha": 0.5}) == pytest.approx(expected)
    advantages = group_advantages(strategy.token_rewards(GROUP, 8, 10), [4, 8, 6], baseline_of(strategy))
    assert advantages[:, 0] == pytest.approx([expected[0] - expected[1] / 2, expected[1] - expected[0] / 2, -0.75])


def test_tlmre_where_there_is_no_spread_and_where_a_response_was_cut_off():
    assert rewards_of({"name": "tlmre", "alpha": 0.5}, lengths((4, True), (9, False))) == [0.75, 0]
    assert rewards_of({"name": "tlmre", "alpha": 0.5}, lengths((4, True), (4, True), (10, True))) == [0.75, 0.75, 0]
    assert rewards_of({"name": "tlmre"}, lengths((4, False), (9, False))) == [0, 0]


def test_lc_r1_cuts_compares_what_is_left_and_rewards_the_tag():
    outcomes = [Outcome(10, True, 3, 7), Outcome(5, True, 3, 3), Outcome(8, False, None, 6)]
    strategy = build({"name": "lc_r1"})
    assert [strategy.kept_spans(o) for o in outcomes] == [[(0, 3), (7, 10)], [(0, 3), (3, 5)], [(0, 8)]]
    # 6, 5 and 8 tokens are left, the longest right one has 6: length terms 0, 1/6, -1/3.
    # closed + right + length: 12/6, 13/6, 4/6; mean 29/18.
    expected = np.repeat(np.array([[7 / 18], [10 / 18], [-17 / 18]]), 10, axis=1)
    expected[0, 7] += 1 - 3 / 7  # 4 of 7 thinking tokens are redundant
    expected[1, 3] += 0  # none of 3
    np.testing.assert_allclose(strategy.token_rewards(outcomes, 10, 12), expected, atol=1e-12)


def test_lc_r1_weights_thinking_without_an_answer_and_groups_without_a_right_one():
    weighted = build({"name": "lc_r1", "length_weight": 0.5, "tag_weight": 2.0})
    missed, cut_off = Outcome(6, True, None, 4), Outcome(12, False, None, 12)
    # lengths against 6: 0 and -1; sequence 2 and 0 - 0.5; mean 0.75
    expected = np.repeat(np.array([[1.25], [-1.25]]), 12, axis=1)
    expected[0, 4] -= 2.0
    np.testing.assert_allclose(weighted.token_rewards([missed, cut_off], 12, 12), expected, atol=1e-12)
    assert weighted.kept_spans(missed) == [(0, 6)]
    wrong = [Outcome(6, False, None, 4), Outcome(3, False, None, 1), Outcome(12, False, None, 12)]  # closed: 1 1 0
    np.testing.assert_allclose(weighted.token_rewards(wrong, 12, 12)[:, 5], [1 / 3, 1 / 3, -2 / 3], atol=1e-12)


def test_l1_exact_charges_the_distance_to_the_budget():
    outcomes = lengths((4, True), (8, True), (9, False), (6, False), target_length=6)
    assert rewards_of({"name": "l1_exact", "alpha": 0.1}, outcomes) == pytest.approx([0.8, 0.8, -0.3, 0])


def test_l1_max_pays_for_staying_below_the_budget():
    outcomes = [
        *lengths((4, True), (8, True), (4, False), target_length=6),  # 0.1 * (6 - 4) + 0.5, 0.1 * (6 - 8) + 0.5
        *lengths((4, True), target_length=12),  # 0.1 * 8 + 0.5, clipped to 1
        *lengths((12, True), target_length=2),  # 0.5 - 1, clipped to 0
    ]
    assert rewards_of({"name": "l1_max", "alpha": 0.1}, outcomes, 12) == pytest.approx([0.7, 0.3, 0, 1, 0])
    assert rewards_of({"name": "l1_max", "alpha": 0.1, "delta": 0.25}, outcomes, 12) == pytest.approx(
        [0.45, 0.05, 0, 1, 0]
    )


@pytest.mark.parametrize("name", ["l1_exact", "l1_max"])
def test_l1_needs_the_budget_that_was_named(name):
    with pytest.raises(ValueError, match="trace 1 has no target length"):
        build({"name": name}).token_rewards([*lengths((4, True), target_length=6), Outcome(3, False, None, 3)], 8, 8)


def test_laser_is_a_step_at_the_target():
    assert rewards_of({"name": "laser", "target": 6}) == [1.5, 1, -0.5]
    assert rewards_of({"name": "laser", "target": 8, "bonus": 0.2, "wrong": 0}) == [1.2, 1.2, 0]
    assert rewards_of({"name": "laser"}, lengths((5, True), (6, True))) == [1.5, 1]  # half of 10


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (lengths((4, True), (3, True), (6, False)), [1, 1.5, -0.5]),  # 2 of 3 are right: easy, 3 tokens
        (lengths((6, True), (5, True), (6, False), (6, False)), [1, 1.5, -0.5, -0.5]),  # 2 of 4: medium, 5 tokens
        (lengths((6, True), (5, False), (6, False)), [1, -0.5, -0.5]),  # 1 of 3: still medium
        (lengths((8, True), *[(2, False)] * 3), [1.5, *[-0.5] * 3]),  # 1 of 4: hard, 8 tokens
        (lengths((9, True), *[(2, False)] * 3), [1, *[-0.5] * 3]),
    ],
)
def test_laser_d_takes_its_target_from_the_share_that_is_right(outcomes, expected):
    assert rewards_of({"name": "laser_d", "easy": 3, "medium": 5, "hard": 8}, outcomes) == expected


def test_laser_d_without_targets_of_its_own():
    easy, medium = lengths((4, True), (5, True), (16, True)), lengths((8, True), (9, True), (1, False), (1, False))
    hard = lengths((16, True), *[(1, False)] * 3)
    assert rewards_of({"name": "laser_d"}, easy, 16) == [1.5, 1, 1]  # 16 / 4
    assert rewards_of({"name": "laser_d"}, medium, 16) == [1.5, 1, -0.5, -0.5]  # 16 / 2
    assert rewards_of({"name": "laser_d"}, hard, 16) == [1.5, -0.5, -0.5, -0.5]  # 16


def test_kimi_places_a_length_between_shortest_and_longest():
    # lam 0.5, -0.5, 0 for lengths 4, 8, 6
    assert rewards_of({"name": "kimi"}) == pytest.approx([1 + 0.2, 1 - 0.2, 0])
    assert rewards_of({"name": "kimi", "weight": 1.0}, lengths((4, False), (8, False), (5, True))) == pytest.approx(
        [0, -0.5, 1.25]  # a short wrong answer gains nothing, a long one loses
    )
    assert rewards_of({"name": "kimi"}, lengths((4, True), (4, False))) == [1, 0]


def test_shorter_better_measures_from_the_shortest_right_one():
    assert rewards_of({"name": "shorter_better", "beta": 0.1}) == pytest.approx([2, 2 - 0.4, -0.2])
    assert rewards_of({"name": "shorter_better", "alpha": 1, "beta": 0.1}, lengths((4, False), (8, False))) == (
        pytest.approx([-0.2, -0.2])  # none right: from the mean, 6
    )


def test_alp_charges_more_where_more_is_right():
    # 2 of 3 right: 0.3 * 2/3 / 10 = 0.02 a token; none right: 0.3 * 1/3 / 10 = 0.01; all right: 0.03
    assert rewards_of({"name": "alp", "beta": 0.3}) == pytest.approx([1 - 0.08, 1 - 0.16, -0.12])
    assert rewards_of({"name": "alp", "beta": 0.3}, lengths((4, False), (8, False), (6, False))) == pytest.approx(
        [-0.04, -0.08, -0.06]
    )
    assert rewards_of({"name": "alp", "beta": 0.3}, lengths((4, True), (8, True))) == pytest.approx([0.88, 0.76])


def test_adaptthink_measures_against_the_samples_that_think():
    thinking = lengths((9, True), (8, True), (9, False), (9, True))  # 3 of 4 right
    skipping = lengths((3, True), (3, False), no_think=True)
    expected = [0.25, 0.25, -0.75, 0.25, 0.25 + 0.05, -0.75 + 0.05]
    assert rewards_of({"name": "adaptthink"}, thinking + skipping) == pytest.approx(expected)
    assert baseline_of(build({"name": "adaptthink"})) == "none"
    # without a verdict on any that think: against the whole group
    assert rewards_of({"name": "adaptthink", "bonus": 0}, skipping) == pytest.approx([0.5, -0.5])
    assert rewards_of({"name": "adaptthink"}, lengths((9, True), (8, True))) == [0, 0]


def test_dapo_overlong_falls_in_a_straight_line():
    outcomes = lengths((6, True), (7, True), (8, True), (10, True), (12, True), (6, False), (8, False))
    expected = [1, 0.75, 0.5, 0, 0, -1, -1.5]  # 0 up to 10 - 4 tokens, a quarter a token, -1 from 10 on
    assert rewards_of({"name": "dapo_overlong", "limit": 10, "cache": 4}, outcomes, 12) == pytest.approx(expected)
    assert rewards_of({"name": "dapo_overlong", "wrong": 0}, lengths((8, True), (9, True), (10, False))) == (
        pytest.approx([1, 0.5, -1])  # the limit is 10, its fifth 2
    )


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"name": "thinkprune", "budget": 11}, "budget is 11 tokens, but responses end at rollout.max_new_tokens=10"),
        ({"name": "laser", "target": 11}, "target is 11"),
        ({"name": "laser_d", "medium": 11}, "medium is 11"),
        ({"name": "dapo_overlong", "limit": 11}, "limit is 11"),
        ({"name": "dapo_overlong", "limit": 5, "cache": 6}, "cache is 6 tokens, more than the limit of 5"),
    ],
)
def test_lengths_that_no_response_reaches(config, match):
    with pytest.raises(UserError, match=match):
        build(config).token_rewards(GROUP, 10, 10)
