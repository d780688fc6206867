"""Buckets by hand and by property; a place is given back however a request ends."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.access.limits import Bucket, Places, Rates
from tests.serve.access.fake_app import Clock


def test_bucket_by_hand():
    clock = Clock(0.0)
    bucket = Bucket(6, clock)  # six at once, then one in ten seconds
    assert [bucket.take() for _ in range(6)] == [0.0] * 6
    assert bucket.take() == pytest.approx(10.0)
    clock.now = 4.0
    assert bucket.take() == pytest.approx(6.0)
    clock.now = 10.0
    assert bucket.take() == 0.0
    assert bucket.take() == pytest.approx(10.0)
    clock.now = 1000.0
    assert [bucket.take() for _ in range(6)] == [0.0] * 6 and bucket.take() > 0


def test_debt_is_paid_before_more_is_let_in():
    clock = Clock(0.0)
    bucket = Bucket(60, clock)  # one a second
    bucket.charge(100)  # 40 in debt
    assert bucket.wait_s() == pytest.approx(41.0)
    clock.now = 41.0
    assert bucket.wait_s() == 0.0


def test_less_than_one_a_minute_still_lets_single_requests_through():
    clock = Clock(0.0)
    bucket = Bucket(0.5, clock)
    assert bucket.take() == 0.0 and bucket.take() == pytest.approx(120.0)


def test_a_changed_limit_gives_no_fresh_start():
    clock = Clock(0.0)
    bucket = Bucket(10, clock)
    assert [bucket.take() for _ in range(10)] == [0.0] * 10
    bucket.limit(20)  # ten more than before, ten are used
    assert [bucket.take() for _ in range(10)] == [0.0] * 10 and bucket.take() == pytest.approx(3.0)
    bucket.limit(20)
    assert bucket.take() == pytest.approx(3.0)


def test_a_clock_that_goes_back_gives_nothing():
    clock = Clock(100.0)
    bucket = Bucket(1, clock)
    bucket.take()
    clock.now = 50.0
    assert bucket.take() > 0


@given(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.floats(0, 120), st.floats(0.01, 5)), max_size=60),
)
def test_never_more_than_rate_times_time_and_burst(per_minute, tries):
    clock = Clock(0.0)
    bucket, let, burst = Bucket(per_minute, clock), 0.0, max(per_minute, 1.0)
    for pause, units in tries:
        clock.now += pause
        if bucket.take(units) == 0.0:
            let += units
        assert let <= per_minute / 60 * clock.now + burst + 1e-6


@given(st.floats(0.1, 1000), st.lists(st.floats(0.01, 5), min_size=1, max_size=30))
def test_who_waits_as_told_gets_through(per_minute, takes):
    clock = Clock(0.0)
    bucket = Bucket(per_minute, clock)
    for units in takes:
        units = min(units, max(per_minute, 1.0))
        clock.now += bucket.take(units) or 0.0
        if bucket.wait_s(units):
            clock.now += bucket.wait_s(units) + 1e-6
        assert bucket.wait_s(units) == 0.0


def test_rates_name_the_limit_and_whole_seconds():
    clock = Clock(0.0)
    rates = Rates(clock)
    assert rates.admit() is None
    rates.limit(2, 60)
    assert rates.admit() is None and rates.admit() is None
    assert rates.admit() == ("requests", 30)
    clock.now = 60.0
    rates.charge(120)  # 60 in debt: 61 s until there is one again
    assert rates.admit() == ("tokens", 61)
    rates.limit(2, None)
    assert rates.admit() is None


def test_a_request_refused_for_tokens_uses_no_request():
    clock = Clock(0.0)
    rates = Rates(clock)
    rates.limit(1, 60)
    rates.charge(60)
    assert rates.admit() == ("tokens", 1)
    clock.now = 1.0
    assert rates.admit() is None


def test_places_are_given_back():
    places = Places()

    async def run(error):
        with places.hold():
            assert places.inside == 1
            if error:
                raise error
            await asyncio.sleep(60)

    async def all_ends():
        with pytest.raises(RuntimeError):
            await run(RuntimeError())
        task = asyncio.create_task(run(None))
        await asyncio.sleep(0)
        assert places.inside == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(all_ends())
    assert places.inside == 0
