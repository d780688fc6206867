"""What strategies refuse, and the hooks by themselves."""

from dataclasses import dataclass

import numpy as np
import pytest

from pipeline.config import UserError
from pipeline.rewards import (
    STRATEGIES,
    UNSTEERED,
    Outcome,
    Steering,
    build,
    joined_spans,
    kept_spans,
    steering,
    strategy_class,
    try_out,
)
from pipeline.rewards.grpo import Grpo

SENSELESS = {
    "adaptthink": [{"bonus": 1}, {"bonus": -0.1}, {"share": 0}, {"share": 1.0}],
    "alp": [{"beta": 0}, {"beta": 1}, {"beta": True}],
    "dapo_overlong": [{"cache": 0}, {"limit": -1}, {"wrong": 0.5}, {"limit": 4.0}],
    "kimi": [{"weight": 0}, {"weight": 2}],
    "l1_exact": [{"alpha": 0}, {"shortest": 0}, {"longest": 0}, {"note": "think"}, {"note": "{tokens}{tokens}"}],
    "l1_max": [{"alpha": -1}, {"shortest": None}, {"delta": 1.5}, {"note": 3}],
    "laser": [{"target": 0}, {"bonus": 0}, {"wrong": 1}, {"target": True}],
    "laser_d": [{"easy": 0}, {"medium": "8"}, {"hard": 2.5}, {"bonus": -1}, {"wrong": float("nan")}],
    "lc_r1": [{"length_weight": -1}, {"tag_weight": float("inf")}],
    "length_penalty": [{"gamma": 0}, {"gamma": "2e-5"}, {"gamma": float("inf")}],
    "shorter_better": [{"alpha": 0}, {"beta": -1}],
    "thinkprune": [{"budget": 0}, {"budget": 1.5}],
    "tlmre": [{"alpha": 0}, {"alpha": 1}],
}


def test_every_strategy_with_options_of_its_own_is_here():
    assert set(SENSELESS) == set(STRATEGIES) - {"decs", "grpo"}


@pytest.mark.parametrize(("name", "options"), [(name, o) for name, all_of in SENSELESS.items() for o in all_of])
def test_senseless_options(name, options):
    (option,) = options
    with pytest.raises(UserError, match=rf"reward\.options\.{option} is .*; give "):
        build({"name": name, **options})


@pytest.mark.parametrize("name", SENSELESS)
def test_unknown_options_suggest_the_nearest(name):
    known = next(iter(SENSELESS[name]))
    (option,) = known
    with pytest.raises(UserError, match=f"reward '{name}' has no option '{option}x'; did you mean '{option}'"):
        build({"name": name, f"{option}x": 1})


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_passes_its_trial_and_says_where_it_comes_from(name):
    try_out(build({"name": name}), group_size=8, max_length=400)
    assert strategy_class(name).__doc__ and "frozen" not in strategy_class(name).__doc__


@dataclass(frozen=True)
class Narrow(Grpo):
    def token_rewards(self, outcomes, width, max_length):
        return np.zeros((len(outcomes), 1))


@dataclass(frozen=True)
class Endless(Grpo):
    def token_rewards(self, outcomes, width, max_length):
        return np.full((len(outcomes), width), np.inf)


@dataclass(frozen=True)
class Misread(Grpo):
    baseline = "group"


@pytest.mark.parametrize(
    ("strategy", "match"),
    [
        (Narrow(), r"\(2, 1\) for 2 traces of up to 8 tokens; .*\(2, 8\)"),
        (Endless(), "gives rewards of up to inf with these options"),
        (Misread(), "baseline 'group' is unknown"),
        (build({"name": "l1_max", "shortest": 9}), "shortest .9. is above the longest budget .8."),
        (build({"name": "l1_max", "shortest": 1, "longest": 9}), "longest is 9 tokens, but .*max_new_tokens=8"),
        (build({"name": "laser", "target": 9}), "target is 9"),
    ],
)
def test_a_trial_tells_before_a_run_does(strategy, match):
    with pytest.raises(UserError, match=match):
        try_out(strategy, group_size=2, max_length=8)


def test_without_hooks_nothing_is_cut_and_nothing_steered():
    assert steering(Grpo(), "p", 3, 0, 8) == (UNSTEERED,) * 3 == (Steering(),) * 3
    assert kept_spans(Grpo(), Outcome(5, True, 1, 3)) == kept_spans(None, Outcome(5, True, 1, 3)) == [(0, 5)]


@pytest.mark.parametrize("spans", [[(1, 0)], [(0, 6)], [(-1, 2)], [(2, 4), (0, 1)], [(0, 3), (2, 5)]])
def test_spans_that_are_none(spans):
    @dataclass(frozen=True)
    class Cuts(Grpo):
        def kept_spans(self, outcome):
            return spans

    with pytest.raises(ValueError, match="do not run in order through a response of 5 tokens"):
        kept_spans(Cuts(), Outcome(5, True, None, 3))


def test_touching_spans_are_one_and_empty_ones_none():
    assert joined_spans([(0, 2), (2, 4), (5, 5), (6, 7)]) == [(0, 4), (6, 7)]
    assert joined_spans([(0, 0)]) == []


@pytest.mark.parametrize(
    ("group", "share", "skipping"), [(8, 0.5, 4), (8, 0.25, 2), (5, 0.5, 2), (2, 0.9, 1), (2, 0.1, 1), (16, 0.9, 14)]
)
def test_adaptthink_shares_out_a_group(group, share, skipping):
    starts = build({"name": "adaptthink", "share": share}).steer("p", group, 0, 8)
    assert [s.no_think for s in starts] == [False] * (group - skipping) + [True] * skipping
    assert starts[0].share == 1 - skipping / group and starts[-1].share == skipping / group


def test_l1_draws_a_budget_for_each_problem():
    strategy = build({"name": "l1_exact", "shortest": 3, "longest": 6, "note": "Use {tokens}."})
    starts = [strategy.steer(f"p{i}", 2, 7, 100) for i in range(200)]
    assert all(pair[0] == pair[1] and pair[0].note == f"Use {pair[0].target_length}." for pair in starts)
    assert {pair[0].target_length for pair in starts} == {3, 4, 5, 6}
    assert starts == [strategy.steer(f"p{i}", 2, 7, 100) for i in range(200)]
    assert starts != [strategy.steer(f"p{i}", 2, 8, 100) for i in range(200)]
    assert [pair[0].target_length for pair in starts[:4]] == [6, 3, 3, 3]  # and in every process: a resume must agree
    assert build({"name": "l1_max"}).steer("p", 1, 0, 100)[0].target_length == 100  # 100 to the longest response
