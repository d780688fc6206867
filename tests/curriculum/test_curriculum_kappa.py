"""Kappa rules against hand-computed sequences."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.config.schema import Curriculum, KappaRule
from pipeline.curriculum import easy_target, kappa_rule

FEEDBACK = ("feedback_clipped", "feedback_unclipped")


def rule(name, **options):
    return kappa_rule(Curriculum(rule=name, **options))


def walk(rule, ratios, shares):
    return [rule.update(ratio, share) for ratio, share in zip(ratios, shares, strict=True)]


CASES = [
    ("feedback_unclipped", [0.62, 0.70, 0.66, 0.80], [0.3] * 4, [0.024, 0.040, 0.032, 0.060]),
    ("feedback_clipped", [0.62, 0.70, 0.66, 0.80], [0.30, 0.03, 0.30, 0.35], [0.024, 0.030, 0.022, 0.050]),
    ("feedback_unclipped", [0.40, 0.58], [0.3] * 2, [-0.020, 0.016]),
    ("feedback_clipped", [0.40, 0.58], [0.3] * 2, [0.0, 0.036]),
]


@pytest.mark.parametrize("name,ratios,shares,expected", CASES)
def test_worked_sequences(name, ratios, shares, expected):
    assert walk(rule(name), ratios, shares) == pytest.approx(expected, abs=1e-12)


def test_constant_stays():
    constant = rule("constant", kappa_start=0.4)
    assert walk(constant, [0.1, 0.9, None], [0.0, 1.0, 0.5]) == [0.4] * 3


def test_linear_goes_from_start_to_end_and_stays_there():
    linear = rule("linear", schedule_steps=200)
    found = [linear.kappa] + walk(linear, [0.5] * 300, [0.3] * 300)
    assert [found[t] for t in (0, 50, 100, 200, 300)] == pytest.approx([0.2, 0.3, 0.4, 0.6, 0.6], abs=1e-12)
    assert [easy_target(found[t], 64) for t in (0, 50, 100, 200, 300)] == [13, 19, 26, 38, 38]


def test_linear_takes_ten_thousand_steps_unless_told_otherwise():
    linear = rule("linear")
    assert walk(linear, [0.5] * 5000, [0.0] * 5000)[-1] == pytest.approx(0.4)
    falling = rule("linear", easy_ratio_start=0.5, easy_ratio_end=0.1, schedule_steps=4)
    assert walk(falling, [None] * 5, [1.0] * 5) == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.1])


def test_off_limits_nothing():
    off = rule("off")
    assert off.kappa is None and walk(off, [0.1, None], [0.0, 1.0]) == [None, None]


@pytest.mark.parametrize("name", FEEDBACK)
def test_a_batch_without_a_detected_prefix_moves_nothing(name):
    one = rule(name, kappa_start=0.1)
    one.update(0.6, 0.5)
    before = one.kappa
    assert one.update(None, 0.0) == before and one.nrp_ratio == 0.6 and one.skipped == 1


@pytest.mark.parametrize(
    "name,option,value,reader",
    [
        ("constant", "kappa_rate", 0.3, "feedback_clipped, feedback_unclipped"),
        ("off", "kappa_start", 0.75, "feedback_clipped, feedback_unclipped, constant"),
        ("feedback_clipped", "schedule_steps", 20, "linear"),
        ("linear", "nrp_start", 0.4, "feedback"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(name, option, value, reader):
    with pytest.raises(UserError, match=rf"curriculum.{option} is {value:g}, .*'{name}'.*{reader}"):
        rule(name, **{option: value})


def test_the_judge_is_needed_where_kappa_follows_the_ratio():
    assert [name.value for name in KappaRule if rule(name).needs_ratio] == list(FEEDBACK)


NAN = float("nan")


@pytest.mark.parametrize("ratio,share", [(NAN, 0.5), (1.2, 0.5), (0.5, NAN), (0.5, -0.1), (None, 2.0)])
def test_values_outside_their_range_are_refused(ratio, share):
    with pytest.raises(ValueError, match="outside 0..1"):
        rule("feedback_clipped").update(ratio, share)


@pytest.mark.parametrize("name", list(KappaRule))
def test_state_survives_json_and_continues_the_same(name):
    first, second = rule(name), rule(name, **({"nrp_start": 0.9} if name in FEEDBACK else {}))
    first.update(0.7, 0.5)
    first.update(None, 0.5)
    second.load(json.loads(json.dumps(first.state())))
    assert second.state() == first.state()
    assert second.update(0.8, 0.5) == first.update(0.8, 0.5)


def test_another_rules_state_or_a_broken_one_is_refused():
    with pytest.raises(UserError, match="follows rule 'constant'"):
        rule("feedback_clipped").load(rule("constant").state())
    with pytest.raises(UserError, match="lacks kappa"):
        rule("constant").load({"rule": "constant", "nrp_ratio": 0.5, "skipped": 0})


shares = st.floats(0, 1)


@given(st.lists(st.tuples(shares, shares), min_size=1, max_size=20))
def test_clipped_kappa_never_leaves_the_available_share(steps):
    clipped = rule("feedback_clipped")
    for ratio, share in steps:
        assert 0 <= clipped.update(ratio, share) <= share


@given(st.lists(shares, min_size=1, max_size=20))
def test_unclipped_kappa_telescopes(ratios):
    assert walk(rule("feedback_unclipped"), ratios, [0.0] * len(ratios))[-1] == pytest.approx(0.2 * (ratios[-1] - 0.5))
