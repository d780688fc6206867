"""One dead, failing or stuck replica does not take the others' states away. Ray is stood in for; none is started."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from serve import replica_states
from serve.replica_states import ReplicaStates, asked, replicas_of


class FakeRay:
    """`stuck` replicas never answer, `failing` ones raise, `gone` ones have no actor."""

    exceptions = SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def __init__(self, gone=(), failing=(), stuck=()):
        self.gone, self.failing, self.stuck, self.asked, self.waited = gone, failing, stuck, [], []

    def get_actor(self, name, namespace):
        if name in self.gone:
            raise ValueError(name)

        def remote(metadata):
            assert b"policy_status" in metadata
            self.asked.append(name)
            return name

        return SimpleNamespace(handle_request=SimpleNamespace(remote=remote))

    def wait(self, calls, num_returns, timeout):
        assert calls and num_returns == len(calls)
        self.waited.append(timeout)
        return [call for call in calls if call not in self.stuck], [call for call in calls if call in self.stuck]

    def get(self, call):
        assert call not in self.stuck, "waits for ever"
        if call in self.failing:
            raise self.exceptions.RayError
        return {"replica": call}


def ids(*names):
    return [SimpleNamespace(unique_id=name, to_full_id_str=lambda name=name: name) for name in names]


def test_those_that_answer_are_told_and_the_others_named(monkeypatch):
    fake = FakeRay(gone="b", failing="c", stuck="d")
    monkeypatch.setattr(replica_states, "ray", fake)
    assert asked(ids(*"dcba")) == {"replicas": [{"replica": "a"}], "silent": ["b", "c", "d"]}
    assert fake.asked == ["d", "c", "a"]
    assert fake.waited == [replica_states.ANSWER_S]
    assert asked(ids("b")) == {"replicas": [], "silent": ["b"]}


def handle(replicas, populated=True):
    router = SimpleNamespace(_asyncio_router=SimpleNamespace(request_router=SimpleNamespace(curr_replicas=replicas)))
    return SimpleNamespace(is_initialized=True, running_replicas_populated=lambda: populated, _router=router)


def test_the_wait_for_serves_list_has_an_end(monkeypatch):
    monkeypatch.setattr(replica_states, "LIST_S", 0.02)
    assert replicas_of(handle({"a": 1})) == ["a"]
    with pytest.raises(TimeoutError, match="which replicas"):
        replicas_of(handle({}, populated=False))


def test_who_asks_meanwhile_gets_the_same_answer_from_a_thread_of_its_own(monkeypatch):
    begun, go, count = threading.Event(), threading.Event(), []

    def slow(replicas):
        count.append(threading.current_thread().name)
        begun.set()
        assert go.wait(10)
        return {"replicas": [], "silent": []}

    monkeypatch.setattr(replica_states, "asked", slow)
    monkeypatch.setattr(
        replica_states.serve, "get_replica_context", lambda: SimpleNamespace(deployment="d", app_name="a")
    )
    monkeypatch.setattr(replica_states.serve, "get_deployment_handle", lambda deployment, app: handle({}))

    async def run():
        states = ReplicaStates()
        waiting = [asyncio.create_task(states()) for _ in range(3)]
        assert await asyncio.to_thread(begun.wait, 10)
        waiting[0].cancel()  # one client leaves; the others still get theirs
        go.set()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError) and answers[1] == answers[2]
        await states()

    asyncio.run(run())
    assert len(count) == 2 and all(name.startswith("replica-states") for name in count)
