"""From configuration to strategy, and what strategies refuse."""

import numpy as np
import pytest

from pipeline.config import UserError
from pipeline.config.schema import Reward
from pipeline.rewards import STRATEGIES, Outcome, build, group_advantages, strategy_class


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_registered_name_builds_from_mapping_and_section(name):
    assert build({"name": name}).name == build(Reward(name=name)).name == strategy_class(name).name == name


def test_section_options_reach_the_strategy():
    assert build(Reward(name="decs", r_plus=2.0, r_zero=0.5, form="paper")).redundant_reward(4, 8) == 0.5 - 1.5 / 2


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'decs'"):
        build({"name": "dec"})
    with pytest.raises(UserError, match="did you mean 'grpo'"):
        build(Reward(name="gprpo"))
    with pytest.raises(UserError, match="no name"):
        build({"r_plus": 1.0})


def test_unknown_option_suggests_the_nearest():
    with pytest.raises(UserError, match="'r_zer'; did you mean 'r_zero'"):
        build({"name": "decs", "r_zer": 1.0})
    with pytest.raises(UserError, match="'r_plus'; it takes none"):
        build({"name": "grpo", "r_plus": 1.1})


def test_an_option_that_would_do_nothing_is_an_error_but_untouched_defaults_are_not():
    with pytest.raises(UserError, match="no option 'r_plus'"):
        build(Reward(name="grpo", r_plus=3.0))
    assert build(Reward.model_validate(Reward(name="grpo").model_dump())).name == "grpo"


@pytest.mark.parametrize(
    "options,match",
    [
        ({"r_plus": 1.0, "r_zero": 1.0}, "r_zero"),
        ({"r_zero": -1.0}, "r_zero"),
        ({"r_plus": float("nan")}, "r_plus"),
        ({"r_plus": "1.1"}, "r_plus"),
        ({"form": "papr"}, "did you mean 'paper'"),
    ],
)
def test_senseless_decs_options(options, match):
    with pytest.raises(UserError, match=match):
        build({"name": "decs", **options})


@pytest.mark.parametrize(
    "outcome",
    [Outcome(9, True, None, 2), Outcome(4, True, 5, 2), Outcome(4, True, None, 5), Outcome(-1, True, None, 0)],
)
@pytest.mark.parametrize("name", STRATEGIES)
def test_contradicting_lengths_are_refused(name, outcome):
    with pytest.raises(ValueError, match="trace 1"):
        build({"name": name}).token_rewards([Outcome(4, True, None, 2), outcome], 8, 8)


def test_grpo_is_correctness_over_the_whole_width():
    outcomes = [Outcome(4, True, 1, 3), Outcome(2, False, None, 2)]
    rewards = build({"name": "grpo"}).token_rewards(outcomes, 5, 8)
    np.testing.assert_array_equal(rewards, [[1] * 5, [0] * 5])
    advantages = group_advantages(rewards, [4, 2])
    np.testing.assert_allclose(advantages, [[0.70711] * 4 + [0], [-0.70711] * 2 + [0] * 3], atol=1e-4)


def test_only_what_reads_the_prefix_asks_for_it():
    assert {name for name in STRATEGIES if build({"name": name}).needs_prefix} == {"decs", "lc_r1"}


def test_further_options_of_a_section():
    with pytest.raises(UserError, match="'gama'"):
        build(Reward(name="decs", options={"gama": 1}))
    with pytest.raises(UserError, match="write reward.r_plus"):
        build(Reward(name="decs", options={"r_plus": 1.2}))
    with pytest.raises(UserError, match="names and values"):
        build({"name": "decs", "options": 3})
