"""The canary's limits: figures by hand from what replicas say of themselves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.schema import Gate
from serve.promotion.watch import Traffic, refusals_since, traffic_since, watch

LIMITS = Gate(min_canary_requests=10)


def state(mark, requests, failed=0, tokens=0, seconds=(), squared=0, **more):
    tokens = {"output_tokens": tokens, "squared_tokens": squared}
    served = {mark: {"requests": requests, "failed": failed, "seconds": list(seconds), **tokens}}
    return {"refusals": 0, "last_refusal": None, "served": served, **more}


def traffic(requests=40, failed=0, tokens=100, seconds=1.0):
    answered = requests - failed
    return Traffic(requests, failed, 0, answered * tokens, (seconds,) * answered, answered * tokens**2)


def crossed(canary, others, limits=LIMITS, **options):
    return [check.limit for check in watch(canary, others, limits, **options) if check.crossed]


def test_only_what_was_answered_since_counts():
    before = {"a": state("v1-x", 5, 1, 50, [1, 2, 3, 4], 500), "b": state("v1-x", 2, 0, 20, [9, 9], 200)}
    now = {
        "a": state("v1-x", 9, 2, 90, [1, 2, 3, 4, 5, 6, 7], 900),
        "b": state("v1-x", 1, 0, 10, [8], 100),  # it started anew
        "c": state("v1-x", 3, 0, 30, [1, 1, 1], 300),
        "d": state("v2-y", 7),
    }
    assert traffic_since(before, now, "v1-x") == Traffic(8, 1, 0, 80, (5, 6, 7, 8, 1, 1, 1), 800)
    assert traffic_since(before, now, "v2-y") == Traffic(7, 0, 0, 0, ())
    assert traffic_since({}, {}, "v1-x") == Traffic()


def test_a_window_of_latencies_that_is_full_gives_what_it_has():
    before, now = {"a": state("m", 600, seconds=[1] * 512)}, {"a": state("m", 1400, seconds=[2] * 512)}
    assert traffic_since(before, now, "m").seconds == (2,) * 512


def test_clients_that_left_have_no_latency():
    entry = {"requests": 6, "failed": 1, "left": 2, "output_tokens": 5, "squared_tokens": 9, "seconds": [1, 2, 3]}
    now = {"a": {"served": {"m": entry}}}
    assert traffic_since({"a": state("m", 2, seconds=[1, 1])}, now, "m").seconds == (3,)  # 4 new: one failed, two left


def test_equal_traffic_crosses_nothing():
    assert crossed(traffic(), traffic()) == []
    assert crossed(Traffic(), Traffic()) == []


def test_right_but_twice_as_slow():
    assert crossed(traffic(seconds=2.0), traffic()) == ["latency ratio p50", "latency ratio p99"]
    (p50, p99) = watch(traffic(seconds=2.0), traffic(), LIMITS)[3:5]
    assert (p50.value, p50.interval) == (2.0, (2.0, 2.0)) == (p99.value, p99.interval)
    tail = Traffic(100, 0, 0, 10000, (1.0,) * 90 + (5.0,) * 10)
    assert crossed(tail, traffic(100)) == ["latency ratio p99"]
    lone = Traffic(100, 0, 0, 10000, (1.0,) * 99 + (500.0,))
    assert crossed(lone, traffic(100)) == []  # the 99th percentile of a third of the draws does not see it


def test_twice_the_tokens():
    assert crossed(traffic(tokens=200), traffic()) == ["output tokens ratio"]
    assert crossed(traffic(tokens=50), traffic()) == []


def test_replies_of_very_different_lengths_prove_a_ratio_only_in_number():
    """Half of 50 and half of 150 tokens against 40 and 120: 1.25 times as many, and 20 replies tell a mean to 11 %."""
    limits = Gate(min_canary_requests=10, max_tokens_ratio=1.2)

    def mixed(count, short, long):
        return Traffic(count, 0, 0, count // 2 * (short + long), (1.0,) * count, count // 2 * (short**2 + long**2))

    few, many = ([mixed(count, 50, 150), mixed(count, 40, 120)] for count in (20, 2000))
    assert crossed(*few, limits) == [] and crossed(*many, limits) == ["output tokens ratio"]
    check = watch(*few, limits)[5]
    assert check.value == 1.25 and check.interval == pytest.approx((0.9096, 1.7179), abs=1e-3)
    assert watch(*many, limits)[5].interval[0] == pytest.approx(1.2118, abs=1e-3)


def test_clients_that_leave_hide_no_longer_replies():
    half = Traffic(40, 0, 20, 20 * 200, (1.0,) * 20, 20 * 200**2)
    assert crossed(half, traffic(20)) == ["output tokens ratio"]
    one = Traffic(1, 0, 0, 130, (1.0,), 130**2)
    assert watch(one, traffic(20), Gate(min_canary_requests=0))[5].value is None  # one reply tells nothing of a spread


def test_latency_and_tokens_wait_for_enough_replies_on_both_sides():
    assert crossed(traffic(9, tokens=900, seconds=9), traffic()) == []
    assert crossed(traffic(tokens=900, seconds=9), traffic(9)) == []


def test_failures_count_before_enough_has_come():
    limits = Gate(min_canary_requests=100, max_error_rate=0.02)
    assert crossed(traffic(4, failed=2), traffic(), limits) == []  # 2 of 100 would be allowed
    assert crossed(traffic(4, failed=3), traffic(), limits) == ["error rate"]
    assert crossed(traffic(200, failed=5), traffic(200), limits) == ["error rate"]
    assert crossed(traffic(200, failed=5), traffic(200, failed=4), limits) == []  # the others fail as well


def test_refusals_and_silence():
    last = {"version": 2, "digest": "d", "reason": "NaN"}
    before = {"a": {"refusals": 1, "last_refusal": last}}
    assert refusals_since(before, before, "d") == 0
    now = {"a": {"refusals": 2, "last_refusal": last}, "b": {"refusals": 1, "last_refusal": {**last, "digest": "e"}}}
    assert refusals_since(before, now, "d") == 1
    assert crossed(Traffic(), Traffic(), refusals=1) == ["refusals of the snapshot"]
    assert crossed(Traffic(), Traffic(), silent_s=15) == []
    assert crossed(Traffic(), Traffic(), silent_s=15.1) == ["seconds of silence"]


@settings(max_examples=30)
@given(st.lists(st.floats(0.001, 100), min_size=10, max_size=30), st.floats(0, 1), st.integers(0, 10))
def test_no_weights_are_worse_than_themselves(seconds, rate, least):
    limits = Gate(min_canary_requests=least, max_error_rate=rate, max_latency_ratio=1, max_tokens_ratio=1)
    same = Traffic(len(seconds), 0, 0, 7 * len(seconds), tuple(seconds))
    assert crossed(same, same, limits) == []


@pytest.mark.parametrize("more", [0, 1, 7])
def test_further_failures_never_help(more):
    limits = Gate(max_error_rate=0.1)
    worse = crossed(traffic(40, failed=5 + more), traffic(), limits)
    assert worse == ["error rate"]
