"""Quantiles and shares of buckets, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.observation.histograms import quantile, share_above

BUCKETS = {10.0: 2.0, 20.0: 6.0, 40.0: 8.0, math.inf: 10.0}  # 2 up to 10, 4 up to 20, 2 up to 40, 2 above


@pytest.mark.parametrize(("share", "value"), [(0.1, 5), (0.2, 10), (0.4, 15), (0.6, 20), (0.7, 30), (0.95, 40)])
def test_quantiles(share, value):
    assert quantile(BUCKETS, share) == pytest.approx(value)


@pytest.mark.parametrize(("limit", "share"), [(0, 1), (5, 0.9), (10, 0.8), (15, 0.6), (30, 0.3), (40, 0.2), (99, 0.2)])
def test_shares(limit, share):
    assert share_above(BUCKETS, limit) == pytest.approx(share)


def test_nothing_observed():
    for empty in ({}, {1.0: 0.0, math.inf: 0.0}):
        assert quantile(empty, 0.5) is None and share_above(empty, 1) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.floats(0, 1))
def test_what_is_below_a_quantile_is_its_share(counts, share):
    bounds = [10.0 * (i + 1) for i in range(len(counts))]
    buckets = {bound: float(sum(counts[: i + 1])) for i, bound in enumerate(bounds)}
    found = quantile(buckets, share)
    if sum(counts) == 0:
        assert found is None
        return
    assert 0 <= found <= bounds[-1]
    assert 1 - share_above(buckets, found) == pytest.approx(share, abs=1e-6) or counts[int(found // 10) - 1] == 0
