"""The replica's engine during a swap, against an engine in memory: what is dropped when, and what is waited for."""

import asyncio
from types import SimpleNamespace

import pytest

from serve import engine_weights
from serve.engine_weights import EngineWeights
from serve.policy import Policy

DIGEST = "ab" * 32
POLICY = Policy(3, "/snapshots/3", DIGEST)
LOADING = "Failed to reset KV cache even when all the running requests are preempted"


class FakeReplica:
    """Notes the calls; the first `busy` resets fail as vLLM's do while blocks are on their way."""

    def __init__(self, tiers=True, busy=0, dropped=True, loaded=(DIGEST,), marked=True):
        self.calls, self._busy, self._dropped, self._loaded, self._marked = [], busy, dropped, loaded, marked
        self.tiers = SimpleNamespace(there=tiers, mark=self._mark)
        self.engine = SimpleNamespace(_engine_client=SimpleNamespace(reset_prefix_cache=self._reset))

    async def pause(self, mode, clear_cache):
        self.calls.append(f"pause {mode} {clear_cache}")

    async def resume(self):
        self.calls.append("resume")

    async def collective_rpc(self, method, args):
        self.calls.append(f"{method} {args[1]}")
        return [{"digest": digest} if digest else None for digest in self._loaded]

    def _mark(self, digest):
        if not self._marked:
            raise OSError("no room")
        self.calls.append(f"mark {digest[:4]}")

    async def _reset(self, **how):
        self.calls.append(f"reset {', '.join(how)}")
        if self._busy:
            self._busy -= 1
            raise RuntimeError(LOADING)
        return self._dropped


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(engine_weights, "LOADS_WAIT_S", (0.0, 0.0))


def swap(replica):
    async def whole():
        weights = EngineWeights(replica)
        await weights.pause("keep")
        digest = await weights.load(POLICY)
        await weights.resume()
        return digest

    return asyncio.run(whole())


def test_tiers_are_reset_once_and_after_the_load():
    replica = FakeReplica()
    assert swap(replica) == DIGEST
    assert replica.calls == [
        "pause keep False", "reset reset_running_requests", "load_snapshot 3", "mark abab", "reset reset_connector",
        "resume",
    ]  # fmt: skip


def test_without_tiers_vllm_clears_at_the_pause():
    replica = FakeReplica(tiers=False)
    swap(replica)
    assert replica.calls[:2] == ["pause keep True", "load_snapshot 3"]


def test_blocks_on_their_way_are_waited_for():
    replica = FakeReplica(busy=2)
    assert swap(replica) == DIGEST
    assert replica.calls[:6] == ["pause keep False", "reset reset_running_requests", "resume"] * 2
    with pytest.raises(RuntimeError, match="Failed to reset"):
        swap(FakeReplica(busy=3))


def test_another_failure_is_not_repeated():
    replica = FakeReplica(dropped=False)
    with pytest.raises(RuntimeError, match="did not drop"):
        swap(replica)
    assert replica.calls == ["pause keep False", "reset reset_running_requests"]


def test_weights_nobody_asked_for_are_not_marked():
    replica = FakeReplica(loaded=("cd" * 32,))
    assert swap(replica) == "cd" * 32
    assert replica.calls[2:] == ["load_snapshot 3", "resume"]
    with pytest.raises(RuntimeError, match="different weights"):
        swap(FakeReplica(loaded=(DIGEST, None)))


def test_a_mark_that_cannot_be_written_leaves_the_disk_off_and_the_swap_alone(caplog):
    replica = FakeReplica(marked=False)
    assert swap(replica) == DIGEST and replica.calls[-2:] == ["reset reset_connector", "resume"]
    assert "the KV cache's disk tier is off: no room" in caplog.text
