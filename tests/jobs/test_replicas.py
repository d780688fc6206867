"""The endpoint as a promotion sees it, and the replay, against a small server."""

import signal
import threading
import time

import pytest

from jobs._replicas import LiveEndpoint, Replayed
from pipeline.config import load_config
from pipeline.evaluation.endpoint import key_headers
from pipeline.problems import load_problems
from serve.client import APP, KEY_VARIABLE, Endpoint
from serve.policy import Policy
from serve.promotion.way_back import uninterrupted
from tests.evaluation.fake_endpoint import FakeEndpoint, serving

PROBLEMS = load_problems(load_config(None, ["problems.held_out.0.size=5"]).problems.held_out, 0)


def replayed(url, replay=8, soak=0.2):
    cfg = load_config(None, [f"gate.replay={replay}", f"gate.soak_s={soak}"])
    return Replayed(cfg, Endpoint(url, "policy"), PROBLEMS, {"authorization": "Bearer x"})


def test_a_whole_replay_asks_each_problem_in_turn_and_counts_failures():
    endpoint = FakeEndpoint(PROBLEMS, fails=(2, 5))
    with serving(endpoint) as url:
        replay = replayed(url)
        replay.whole()
    assert (replay.sent, replay.failed, len(endpoint.asked)) == (8, 2, 8)
    asked = [body["messages"][0]["content"] for body in endpoint.asked]
    assert sorted(asked) == sorted((PROBLEMS * 2)[i].prompt for i in range(8))
    assert len({body["seed"] for body in endpoint.asked}) == 8


def test_a_replay_goes_on_as_long_as_the_block_runs_and_no_longer():
    endpoint = FakeEndpoint(PROBLEMS)
    with serving(endpoint) as url:
        replay = replayed(url, replay=2, soak=0.1)
        with pytest.raises(KeyboardInterrupt), replay.running():
            until = time.monotonic() + 20
            while len(endpoint.asked) < 4 and time.monotonic() < until:
                time.sleep(0.05)
            raise KeyboardInterrupt
        assert len(endpoint.asked) >= 4
        assert not [thread for thread in threading.enumerate() if thread.name == "gate-replay"]


def test_without_a_server_requests_fail_and_without_a_replay_none_are_sent():
    replay = replayed("http://127.0.0.1:9", replay=3, soak=0.1)
    replay.whole()
    assert (replay.sent, replay.failed) == (3, 3)
    none = replayed("http://127.0.0.1:9", replay=0)
    none.whole()
    with none.running():
        pass
    assert none.sent == 0


def test_an_interrupt_waits_until_the_canary_is_taken_back():
    done = []
    former = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: done.append("told"))
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            done.append("ended")
        assert done == ["ended", "told"]
    finally:
        signal.signal(signal.SIGTERM, former)
    thread = threading.Thread(target=lambda: done.append(uninterrupted().__enter__()))
    thread.start()
    thread.join()
    assert done[-1] is None


def test_what_the_deployment_wants_is_told_by_serve(monkeypatch):
    config = Policy(3, "/v3", "d" * 64).as_config() | {
        "canary": Policy(4, "/v4", "e" * 64).as_config() | {"replicas": 1},
        "access": {"keys": []},
    }
    running = {"HotSwapServer:policy": {"deployment_config": {"user_config": config}}}
    told = {
        "deployed_app_config": {"args": {"config": "tiny.yaml"}},
        "deployments": running,
    }  # as from infra/serve.yaml
    details = {"applications": {APP: told}}
    monkeypatch.setattr("serve.client.details", lambda dashboard: details)
    wanted = LiveEndpoint(load_config(None, []), "http://x").wanted()
    assert (wanted.policy.version, wanted.canary.folder, wanted.canary_replicas) == (3, "/v4", 1)


def test_the_key_of_the_environment_is_sent(monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert key_headers() == {}
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert key_headers() == {"authorization": "Bearer secret"}
