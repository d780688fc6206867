"""Summaries by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation import nrp_share, ratio, summarise
from pipeline.evaluation.summary import bootstrap, by_problem
from pipeline.traces import Stop
from tests.loop.builders import scored

TRACES = [
    scored(True, 10, think=8, prefix=4, problem="a"),
    scored(True, 20, think=12, prefix=12, problem="b"),
    scored(True, 6, think=4, problem="c"),
    scored(False, 30, think=30, stop=Stop.LENGTH, problem="d"),
    scored(None, 4, think=2, problem="e"),
]
UNEVEN = [  # three samples of one problem, one of another, and one problem whose checks all failed
    scored(True, 10, think=6, prefix=2, problem="a"),
    scored(False, 20, think=18, problem="a"),
    scored(None, 30, think=28, problem="a"),
    scored(True, 40, think=36, prefix=36, problem="b"),
    scored(None, 50, think=48, problem="c"),
]


def test_by_hand():
    found = summarise(TRACES)
    assert (found.n, found.problems, found.accuracy, found.unknown_rate) == (5, 5, 3 / 4, 1 / 5)
    assert found.tokens_mean == 70 / 5 and found.think_tokens_mean == 56 / 5
    assert found.answer_tokens_mean == ((10 - 9) + (20 - 13) + (6 - 5) + 0 + (4 - 3)) / 5
    assert found.nrp_share == (4 + 12) / (8 + 12)
    assert found.tokens_per_correct == 70 / 3
    assert found.tokens_per_point == (70 / 5) / 75
    assert found.truncated_rate == 1 / 5
    assert found.detector_misses == 1 / 3
    low, high = found.tokens_interval
    assert 4 <= low < 14 < high <= 30
    assert found.accuracy_interval[0] < 3 / 4 < found.accuracy_interval[1] or found.accuracy_interval[1] == 1.0


def test_samples_first_then_problems():
    found = summarise(UNEVEN)
    assert (found.n, found.problems) == (5, 3)
    assert found.accuracy == (1 / 2 + 1) / 2  # not 2 of 3: the unknown ones are left out, and so is problem c
    assert found.tokens_mean == ((10 + 20 + 30) / 3 + 40 + 50) / 3
    assert found.unknown_rate == 2 / 5
    assert found.nrp_share == (2 + 36) / (6 + 36)
    assert found.tokens_per_correct == 150 / 2
    assert list(by_problem(UNEVEN)) == ["a", "b", "c"]


def test_intervals_know_that_samples_of_one_problem_hang_together():
    one_each = [scored(bool(i % 2), problem=str(i)) for i in range(40)]
    twenty_each = [scored(i < 20, problem="even" if i < 20 else "odd") for i in range(40)]
    low, high = summarise(one_each).accuracy_interval
    assert 0.3 < low < 0.5 < high < 0.7
    assert summarise(twenty_each).accuracy_interval == (0.0, 1.0)


def test_a_wrong_trace_never_counts_as_necessary():
    assert nrp_share([scored(False, 10, think=8, prefix=4)]) is None
    assert nrp_share([scored(True, 10, think=8, prefix=4), scored(False, 10, think=8, prefix=8)]) == 0.5


def test_nothing_at_all():
    found = summarise([]).to_dict()
    assert (found.pop("n"), found.pop("problems")) == (0, 0) and set(found.values()) == {None}


def test_nothing_right():
    found = summarise([scored(False), scored(None)])
    assert (found.accuracy, found.nrp_share, found.tokens_per_correct, found.detector_misses) == (0, None, None, None)
    assert found.tokens_per_point is None


def test_nothing_known():
    found = summarise([scored(None)])
    assert found.accuracy is None and found.accuracy_interval is None and found.unknown_rate == 1


def test_without_intervals():
    found = summarise(TRACES, intervals=False)
    intervals = {name: value for name, value in found.to_dict().items() if name.endswith("_interval")}
    assert len(intervals) == 4 and set(intervals.values()) == {None} and found.accuracy == 3 / 4


def test_summary_goes_into_json():
    assert json.loads(json.dumps(summarise(TRACES).to_dict()))["n"] == 5


def test_ratio():
    assert ratio(1, 4) == 0.25 and ratio(3, 0) is None


@given(st.lists(st.floats(0, 100), min_size=2, max_size=12))
def test_bootstrap_interval(values):
    low, high = bootstrap(values, rounds=50)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert bootstrap(values, rounds=50) == (low, high)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 9)), min_size=2, max_size=12))
def test_bootstrap_of_ratios(pairs):
    parts, wholes = zip(*pairs, strict=True)
    low, high = bootstrap(parts, wholes, rounds=50)
    ratios = [part / whole for part, whole in pairs]
    assert min(ratios) - 1e-9 <= low <= high <= max(ratios) + 1e-9


def test_bootstrap_without_anything_to_divide_by():
    assert bootstrap([3, 4], [0, 0]) is None
    assert bootstrap([3, 4] + [0] * 8, [1, 1] + [0] * 8) == (3, 4)  # draws without a denominator are left out


def test_bootstrap_of_equal_values_is_a_point():
    assert bootstrap([2.0] * 5) == (2.0, 2.0) and bootstrap([]) is bootstrap([2.0]) is None


@pytest.mark.parametrize("order", [TRACES, TRACES[::-1]])
def test_order_does_not_matter(order):
    assert summarise(order, intervals=False) == summarise(TRACES, intervals=False)
