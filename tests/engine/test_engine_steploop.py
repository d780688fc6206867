"""The engine's thread, with a counting stand-in for vLLM's engine (each request takes a fixed number of steps)."""

import threading
from types import SimpleNamespace

import pytest

from pipeline.engine import EngineBroken
from pipeline.engine.steploop import StepLoop


class Counting:
    """Request params are the number of steps it needs; `gate` holds back steps until set."""

    def __init__(self):
        self.left = {}
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False
        self.ended = 0
        self.engine_core = SimpleNamespace(shutdown=self._end)
        self.renderer = SimpleNamespace(shutdown=lambda: None)

    def _end(self):
        self.ended += 1

    def add_request(self, request_id, prompt, params):
        if prompt is None:
            raise ValueError("no prompt")
        self.left[request_id] = params

    def abort_request(self, request_ids):
        for request_id in request_ids:
            del self.left[request_id]

    def has_unfinished_requests(self):
        return bool(self.left)

    def step(self):
        assert self.gate.wait(60)
        if self.broken:
            raise RuntimeError("device lost")
        done = []
        for request_id in list(self.left):
            self.left[request_id] -= 1
            if not self.left[request_id]:
                del self.left[request_id]
                done.append(SimpleNamespace(request_id=request_id, finished=True))
        return done


@pytest.fixture
def engine():
    return Counting()


@pytest.fixture
def loop(engine):
    loop = StepLoop(lambda: engine, "e")
    loop.start().result(30)
    yield loop
    engine.gate.set()
    assert loop.stop(30)


def test_requests_resolve_and_work_runs_between_steps(loop, engine):
    long, short = loop.request("a", {}, 40), loop.request("b", {}, 2)
    assert short.result(30).request_id == "b"
    assert loop.submit(lambda e: e is engine).result(30)
    assert long.result(30).request_id == "a"
    assert loop.unfinished == 0


def test_a_refused_request_fails_alone(loop):
    with pytest.raises(ValueError, match="no prompt"):
        loop.request("a", None, 1).result(30)
    assert loop.request("b", {}, 1).result(30)


def test_idle_work_waits_for_running_requests_and_holds_back_new_ones(loop, engine):
    engine.gate.clear()
    first = loop.request("a", {}, 3)
    seen = loop.submit(lambda e: dict(e.left), when_idle=True)
    later = loop.request("b", {}, 1)
    engine.gate.set()
    assert seen.result(30) == {}
    assert first.done()
    assert later.result(30).request_id == "b"


def test_idle_work_can_be_withdrawn_before_it_began(loop, engine):
    engine.gate.clear()
    first = loop.request("a", {}, 3)
    seen = loop.submit(lambda e: None, when_idle=True)
    later = loop.request("b", {}, 1)
    withdrawn = loop.withdraw(seen)
    engine.gate.set()
    assert withdrawn.result(30) is True
    assert first.result(30) and later.result(30)
    assert not seen.done()
    assert loop.withdraw(seen).result(30) is False


def test_abort_drops_running_and_held_requests(loop, engine):
    engine.gate.clear()
    loop.request("a", {}, 10_000_000)
    waiting = loop.submit(lambda e: "idle", when_idle=True)
    loop.request("b", {}, 1)
    loop.abort(["a", "b"])
    engine.gate.set()
    assert waiting.result(30) == "idle"
    assert loop.unfinished == 0 and not engine.left


def test_a_failing_step_reaches_everyone_who_waits_and_closes_the_engine(loop, engine):
    engine.gate.clear()
    running, idle = loop.request("a", {}, 5), loop.submit(lambda e: None, when_idle=True)
    held = loop.request("b", {}, 5)
    engine.broken = True
    engine.gate.set()
    for future in (running, idle, held):
        with pytest.raises(EngineBroken, match="engine e failed: RuntimeError: device lost"):
            future.result(30)
    with pytest.raises(EngineBroken, match="takes no traffic"):
        loop.request("c", {}, 1)
    assert loop.stop(30) and engine.ended == 1


def test_a_failing_build_is_told():
    def build():
        raise ValueError("bad option")

    loop = StepLoop(build, "e")
    with pytest.raises(EngineBroken, match="ValueError: bad option") as caught:
        loop.start().result(30)
    assert isinstance(caught.value.__cause__, ValueError)
    assert loop.stop(30)


def test_failing_from_outside_wakes_an_idle_loop(engine, monkeypatch):
    monkeypatch.setattr("pipeline.engine.steploop.IDLE_WAIT_S", 600)
    loop = StepLoop(lambda: engine, "e")
    loop.start().result(30)
    loop.fail(EngineBroken("weights unknown"))
    assert loop.stop(30)
    with pytest.raises(EngineBroken, match="weights unknown"):
        loop.submit(lambda e: None)
