"""Summaries by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation import nrp_share, ratio, summarise
from pipeline.evaluation.summary import bootstrap
from pipeline.traces import Stop
from tests.loop.builders import scored

TRACES = [
    scored(True, 10, think=8, prefix=4),
    scored(True, 20, think=12, prefix=12),
    scored(True, 6, think=4),
    scored(False, 30, think=30, stop=Stop.LENGTH),
    scored(None, 4, think=2),
]


def test_by_hand():
    found = summarise(TRACES)
    assert (found.n, found.accuracy, found.unknown_rate) == (5, 3 / 4, 1 / 5)
    assert found.tokens_mean == 70 / 5 and found.think_tokens_mean == 56 / 5
    assert found.nrp_share == (4 + 12) / (8 + 12)
    assert found.tokens_per_correct == 70 / 3
    assert found.truncated_rate == 1 / 5
    assert found.detector_misses == 1 / 3
    low, high = found.tokens_interval
    assert 4 <= low < 14 < high <= 30
    assert found.accuracy_interval[0] < 3 / 4 < found.accuracy_interval[1] or found.accuracy_interval[1] == 1.0


def test_a_wrong_trace_never_counts_as_necessary():
    assert nrp_share([scored(False, 10, think=8, prefix=4)]) is None
    assert nrp_share([scored(True, 10, think=8, prefix=4), scored(False, 10, think=8, prefix=8)]) == 0.5


def test_nothing_at_all():
    found = summarise([]).to_dict()
    assert found.pop("n") == 0 and set(found.values()) == {None}


def test_nothing_right():
    found = summarise([scored(False), scored(None)])
    assert (found.accuracy, found.nrp_share, found.tokens_per_correct, found.detector_misses) == (0, None, None, None)


def test_nothing_known():
    found = summarise([scored(None)])
    assert found.accuracy is None and found.accuracy_interval is None and found.unknown_rate == 1


def test_without_intervals():
    found = summarise(TRACES, intervals=False)
    assert found.accuracy_interval is None and found.tokens_interval is None and found.accuracy == 3 / 4


def test_summary_goes_into_json():
    assert json.loads(json.dumps(summarise(TRACES).to_dict()))["n"] == 5


def test_ratio():
    assert ratio(1, 4) == 0.25 and ratio(3, 0) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_bootstrap_interval(values):
    low, high = bootstrap(values, rounds=50)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert bootstrap(values, rounds=50) == (low, high)


def test_bootstrap_of_equal_values_is_a_point():
    assert bootstrap([2.0] * 5) == (2.0, 2.0) and bootstrap([]) is None


@pytest.mark.parametrize("order", [TRACES, TRACES[::-1]])
def test_order_does_not_matter(order):
    assert summarise(order, intervals=False) == summarise(TRACES, intervals=False)
