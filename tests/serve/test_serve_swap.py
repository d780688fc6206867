"""The gate and the order of a swap, with an engine that writes down what is done to it."""

import asyncio

import pytest

from pipeline.config import UserError
from serve.gate import Gate, GateClosed
from serve.policy import Policy
from serve.swap import SwapFailed, Swapper

V1, V2 = Policy(1, "/1", "d1" * 8), Policy(2, "/2", "d2" * 8)


class Engine:
    def __init__(self, fails=(), wrong=(), parities=None):
        self.calls, self.fails, self.wrong, self.holds = [], set(fails), set(wrong), None
        self.parities = parities or {}

    async def pause(self, mode):
        self.calls.append(f"pause {mode}")

    async def load(self, policy):
        self.calls.append(f"load {policy.version}")
        if policy.version in self.fails:
            raise RuntimeError("disk is gone")
        self.holds = policy.version
        return "other" if policy.version in self.wrong else policy.digest

    async def resume(self):
        self.calls.append("resume")

    async def parity(self, policy):
        return self.parities.get(policy.version)


def accept(policy):
    return 1000 + policy.version


def refuse_second(policy):
    if policy.version == 2:
        raise UserError("tensor 'a' holds NaN or infinity")
    return 0


def swapper(engine, verify=accept, drain_s=5.0, parity_limit=None):
    return Swapper(engine, Gate(), verify, drain_s=drain_s, parity_limit=parity_limit)


async def request(gate, steps, seen):
    await gate.opened()
    admission = gate.enter()
    try:
        for _ in range(steps):
            await asyncio.sleep(0.005)
        seen.append(admission.fingerprint)
    finally:
        gate.leave(admission)


def test_requests_wait_until_weights_are_confirmed():
    async def run():
        swap, seen = swapper(Engine()), []
        waiting = asyncio.create_task(request(swap._gate, 1, seen))
        await asyncio.sleep(0.02)
        assert seen == [] and swap.state()["waiting"] == 1
        await swap.adopt(V1)
        await waiting
        assert seen == [V1.fingerprint]

    asyncio.run(run())


def test_wait_gives_every_request_one_version():
    async def run():
        engine, seen = Engine(), []
        swap = swapper(engine)
        await swap.adopt(V1)
        before = [asyncio.create_task(request(swap._gate, 60, seen)) for _ in range(10)]
        await asyncio.sleep(0.01)
        change = asyncio.create_task(swap.to(V2))
        while swap._gate.is_open:
            await asyncio.sleep(0.001)
        after = [asyncio.create_task(request(swap._gate, 5, seen)) for _ in range(10)]
        await asyncio.gather(change, *before, *after)
        assert engine.calls == ["pause wait", "load 2", "resume"]
        assert sorted(seen) == [V1.fingerprint] * 10 + [V2.fingerprint] * 10
        assert swap.state()["mixed"] == 0 and swap.state()["drained"] is True

    asyncio.run(run())


@pytest.mark.parametrize(("policy", "drain_s"), [(V2, 0.02), (Policy(2, "/2", V2.digest, "keep"), 5.0)])
def test_keep_marks_replies_that_mix_versions(policy, drain_s):
    async def run():
        engine, seen = Engine(), []
        swap = swapper(engine, drain_s=drain_s)
        await swap.adopt(V1)
        running = asyncio.create_task(request(swap._gate, 30, seen))
        await asyncio.sleep(0.01)
        await swap.to(policy)
        assert seen == []  # the swap did not wait for it
        await running
        assert engine.calls[0] == "pause keep"
        assert seen == [f"{V1.fingerprint}+{V2.fingerprint}"]
        assert swap.state()["mixed"] == 1 and swap.state()["drained"] is False

    asyncio.run(run())


def test_refused_snapshot_leaves_the_old_one_untouched():
    async def run():
        engine = Engine()
        swap = swapper(engine, refuse_second)
        await swap.adopt(V1)
        await swap.to(V2)
        assert engine.calls == [] and swap.current == V1
        assert swap.state()["last_refusal"]["reason"] == "tensor 'a' holds NaN or infinity"
        await request(swap._gate, 1, seen := [])
        assert seen == [V1.fingerprint]

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["fails", "wrong"])
def test_failed_load_goes_back_to_the_old_weights(fault):
    async def run():
        engine = Engine(**{fault: [2]})
        swap = swapper(engine)
        await swap.adopt(V1)
        await swap.to(V2)
        assert engine.calls == ["pause wait", "load 2", "pause wait", "load 1", "resume"]
        assert engine.holds == 1 and swap.current == V1 and swap.refusals == 1 and swap.broken is None

    asyncio.run(run())


def test_without_any_good_weights_the_replica_is_broken():
    async def run():
        engine = Engine(fails=[1, 2])
        swap = swapper(engine)
        await swap.adopt(V1)
        with pytest.raises(SwapFailed):
            await swap.to(V2)
        assert swap.broken and "resume" not in engine.calls
        assert not swap._gate.is_open

    asyncio.run(run())


@pytest.mark.parametrize("parity", [0.5, float("inf"), float("nan")])
def test_weights_that_compute_something_else_do_not_stay(parity):
    async def run():
        engine = Engine(parities={1: 1e-5, 2: parity})
        swap = swapper(engine, parity_limit=1e-3)
        await swap.adopt(V1)
        running = asyncio.create_task(request(swap._gate, 1, seen := []))
        await running
        await swap.to(V2)
        assert engine.calls[-3:] == ["pause wait", "load 1", "resume"] and engine.holds == 1
        assert "log-probs differ" in swap.state()["last_refusal"]["reason"]
        assert swap.current == V1 and swap.state()["parity"] == 1e-5 and seen == [V1.fingerprint]

    asyncio.run(run())


def test_requests_that_saw_refused_weights_say_so():
    async def run():
        engine, seen = Engine(parities={1: 0.0, 2: 1.0}), []
        swap = swapper(engine, parity_limit=1e-3)
        await swap.adopt(V1)
        running = asyncio.create_task(request(swap._gate, 20, seen))
        await asyncio.sleep(0.01)
        await swap.to(Policy(2, "/2", V2.digest, "keep"))
        await running
        assert seen == [f"{V1.fingerprint}+{V2.fingerprint}+{V1.fingerprint}"]

    asyncio.run(run())


def test_without_a_limit_parity_is_only_shown():
    async def run():
        swap = swapper(Engine(parities={2: 0.5}))
        await swap.adopt(V1)
        await swap.to(V2)
        state = swap.state()
        assert state["parity"] == 0.5 and state["version"] == 2 and state["bytes"] == 1002
        assert all(state[f"{name}_seconds"] >= 0 for name in ("swap", "verify", "drain", "pause"))

    asyncio.run(run())


def test_first_policy_must_be_good():
    async def run():
        with pytest.raises(SwapFailed, match="NaN"):
            await swapper(Engine(), refuse_second).to(V2)
        with pytest.raises(SwapFailed, match="digest"):
            swapper(Engine()).refuse_config({"version": 1}, "user_config.digest is missing")

    asyncio.run(run())


def test_same_policy_again_does_nothing():
    async def run():
        engine = Engine()
        swap = swapper(engine)
        await swap.adopt(V1)
        await swap.to(Policy(1, "/moved", V1.digest))
        assert engine.calls == [] and swap.swaps == 0

    asyncio.run(run())


def test_an_abandoned_request_leaves_the_gate():
    async def run():
        swap = swapper(Engine())
        await swap.adopt(V1)
        task = asyncio.create_task(request(swap._gate, 1000, []))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert swap.state()["inside"] == 0
        await asyncio.wait_for(swap.to(V2), 1)

    asyncio.run(run())


def test_a_broken_replica_tells_those_who_wait_and_those_who_come():
    async def run():
        swap = swapper(Engine(fails=[1, 2]))
        await swap.adopt(V1)
        running = asyncio.create_task(request(swap._gate, 20, []))
        await asyncio.sleep(0.01)
        swapping = asyncio.create_task(swap.to(V2))
        while swap._gate.is_open:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(request(swap._gate, 1, []))
        assert isinstance((await asyncio.gather(swapping, return_exceptions=True))[0], SwapFailed)
        with pytest.raises(GateClosed, match="old weights could not be loaded either"):
            await asyncio.wait_for(waiting, 1)
        with pytest.raises(GateClosed, match="serves no more"):
            await asyncio.wait_for(request(swap._gate, 1, []), 1)
        await running
        swap._engine.fails.clear()
        await swap.to(V2)  # Serve may ask once more before it replaces the replica
        await asyncio.wait_for(request(swap._gate, 1, seen := []), 1)
        assert seen == [V2.fingerprint] and swap.state()["waiting"] == 0

    asyncio.run(run())


def test_nobody_waits_at_the_gate_for_ever():
    async def run():
        gate = Gate(longest_wait_s=0.02)
        with pytest.raises(GateClosed, match="its first weights.*longer than 0.02 s"):
            await asyncio.wait_for(request(gate, 1, []), 1)
        gate.open(V1.fingerprint)
        await gate.close(1, V2.fingerprint)
        with pytest.raises(GateClosed, match=f"the swap to {V2.fingerprint}"):
            await asyncio.wait_for(request(gate, 1, []), 1)
        assert gate.waiting == gate.inside == 0

    asyncio.run(run())


def test_an_idle_gate_is_drained_without_a_wait():
    async def run():
        swap = swapper(Engine())
        await swap.adopt(V1)
        await swap.to(Policy(2, "/2", V2.digest, "keep"))
        assert swap.state()["drained"] is True and swap._engine.calls[0] == "pause wait"

    asyncio.run(run())
