"""The engines as one: requests are spread, every receipt is compared, and the engine at fault is named."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import GenerateRequest, SwapReceipt
from pipeline.loop.pool import EngineFailed, RolloutPool, spread
from pipeline.loop.waiting import Waits
from pipeline.traces import Group
from tests.loop.builders import Remote


class Engine:
    def __init__(self, lose=(), delay=0.0, echo=None, error=None):
        self.lose, self.delay, self.echo, self.error = set(lose), delay, echo, error
        self.calls = []

    async def generate(self, requests):
        self.calls.append([request.issue_id for request in requests])
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return [Group(r.issue_id, r.problem_id, ()) for r in reversed(requests) if r.issue_id not in self.lose]

    async def swap(self, folder, version, digest, mode, verified):
        self.calls.append((folder, version, digest, mode))
        return SwapReceipt(*(self.echo or (version, digest)), 0.5, 0.0, 1)

    async def start(self, model, options):
        return f"{model} {options}"


def pool(*engines, deadline=5.0):
    return RolloutPool([Remote(engine) for engine in engines], Waits(), deadline)


def requests(count):
    return [GenerateRequest(f"0/p{i}", f"p{i}", (1, 2), 2, i) for i in range(count)]


@given(st.integers(0, 30), st.integers(1, 5))
def test_spread_deals_every_request_once_and_evenly(count, engines):
    asked = requests(count)
    shares = spread(asked, engines)
    assert len(shares) == engines and sorted((r for s in shares for r in s), key=lambda r: r.seed) == asked
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_groups_come_back_in_the_order_of_the_requests(count):
    engines = [Engine(delay=0.01), Engine(), Engine()]
    groups = asyncio.run(pool(*engines).generate(requests(count)))
    assert [group.issue_id for group in groups] == [f"0/p{i}" for i in range(count)]
    assert sum(len(engine.calls) for engine in engines) == min(count, 3)


def test_missing_group_is_named():
    with pytest.raises(EngineFailed, match="no group for 1 issues, such as 0/p3"):
        asyncio.run(pool(Engine(), Engine(lose=["0/p3"])).generate(requests(4)))


def test_deadline_names_the_engine():
    with pytest.raises(EngineFailed, match=r"rollout engine 1 failed to generate: waited 0.05 s"):
        asyncio.run(pool(Engine(), Engine(delay=60), deadline=0.05).generate(requests(2)))


def test_failure_names_the_engine_and_the_reason():
    with pytest.raises(EngineFailed, match="rollout engine 0 failed to generate: out of memory"):
        asyncio.run(pool(Engine(error=RuntimeError("out of memory")), Engine()).generate(requests(2)))


def test_swap_reaches_every_engine():
    engines = [Engine(), Engine()]
    receipts = asyncio.run(pool(*engines).swap("/run/v2", 2, "abc"))
    assert [(r.version, r.digest) for r in receipts] == [(2, "abc")] * 2
    assert all(engine.calls == [("/run/v2", 2, "abc", "keep")] for engine in engines)


@pytest.mark.parametrize("echo", [(1, "abc"), (2, "abd")])
def test_wrong_echo_after_a_swap(echo):
    with pytest.raises(EngineFailed, match=rf"rollout engine 1 answers version {echo[0]} \({echo[1]}\) after the swap"):
        asyncio.run(pool(Engine(), Engine(echo=echo)).swap("/run/v2", 2, "abc"))


def test_start_asks_all():
    engines = pool(Engine(), Engine())
    assert asyncio.run(engines.start("model", "options")) == ["model options"] * 2
