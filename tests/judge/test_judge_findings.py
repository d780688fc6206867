"""Rates by hand: eight segments, four of them right."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.judge import Unjudged
from pipeline.judge.findings import THRESHOLDS, agreement, calibration, first_yes, is_yes, sweep

LABELS = [True, True, True, True, False, False, False, False]
SAID = [0.99, 0.85, 0.84, Unjudged.OVERLONG, 0.0, 0.9, math.nan, 0.3]


def test_rates():
    found = agreement(LABELS, SAID, 0.85)
    assert (found.n, found.labelled_yes, found.agreed, found.unjudged) == (8, 4, 5, 2)
    assert (found.false_yes, found.missed_yes) == (1, 2)
    assert (found.agreement, found.false_yes_rate, found.missed_yes_rate) == (5 / 8, 1 / 4, 2 / 4)
    assert found.to_dict()["false_yes_rate"] == 0.25


def test_shares_without_a_denominator_are_none():
    assert agreement([], [], 0.5).agreement is None
    only_yes = agreement([True], [1.0], 0.5)
    assert (only_yes.false_yes_rate, only_yes.missed_yes_rate) == (None, 0.0)


def test_what_was_not_judged_is_no():
    assert [is_yes(answer, 0.0) for answer in (0.0, math.nan, Unjudged.OVERLONG)] == [True, False, False]


def test_a_higher_threshold_trades_false_yes_for_missed_yes():
    rows = sweep(LABELS, SAID)
    assert [row["threshold"] for row in rows] == list(THRESHOLDS)
    at = {row["threshold"]: row for row in rows}
    assert (at[0.3]["false_yes_rate"], at[0.3]["missed_yes_rate"]) == (0.5, 0.25)
    assert (at[0.95]["false_yes_rate"], at[0.95]["missed_yes_rate"]) == (0.0, 0.75)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40))
def test_a_sweep_is_monotone(pairs):
    rows = sweep([label for label, _ in pairs], [said for _, said in pairs])
    false = [row["false_yes_rate"] or 0.0 for row in rows]
    missed = [row["missed_yes_rate"] or 0.0 for row in rows]
    assert false == sorted(false, reverse=True) and missed == sorted(missed)


def test_calibration_by_tenths():
    rows = calibration([True, False, True, False], [0.95, 1.0, Unjudged.OVERLONG, 0.02])
    assert rows[0] == {"said": 0.02, "found": 0.0, "segments": 1.0}
    assert rows[1] == {"said": pytest.approx(0.975), "found": 0.5, "segments": 2.0}


def test_the_first_yes_ends_the_prefix():
    assert [first_yes(v) for v in ([False, True, True], [False], [])] == [1, None, None]
