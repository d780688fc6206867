"""The order of a weight update, and that only an echoed identity counts, with a recording stand-in for vLLM."""

import pytest

from pipeline.engine import EngineBroken, SwapRefused
from pipeline.engine.actor import RolloutActor
from pipeline.engine.swap import apply_snapshot

ECHO = {"version": 3, "digest": "d", "tensors": 5}


class Recording:
    def __init__(self, echoes=(ECHO,), cache_reset=True, fails=None):
        self.echoes, self.cache_reset, self.fails = list(echoes), cache_reset, fails
        self.calls = []

    def collective_rpc(self, method, args=(), kwargs=None):
        self.calls.append(method)
        if method == self.fails:
            raise ValueError(f"{method} failed")
        return self.echoes if method == "loaded_weights" else [None]

    def reset_prefix_cache(self, reset_running_requests=False):
        assert reset_running_requests
        self.calls.append("reset")
        return self.cache_reset

    def set_weight_version(self, version):
        self.calls.append(f"version {version}")


def test_four_phases_then_proof_then_cache_then_label():
    engine = Recording()
    assert apply_snapshot(engine, "f", 3, "d").tensors == 5
    assert engine.calls == [
        "check_snapshot",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
        "loaded_weights",
        "reset",
        "version 3",
    ]


def test_a_refusal_comes_before_anything_is_touched():
    engine = Recording(fails="check_snapshot")
    with pytest.raises(SwapRefused):
        apply_snapshot(engine, "f", 3, "d")
    assert engine.calls == ["check_snapshot"]


@pytest.mark.parametrize("phase", ["start_weight_update", "update_weights", "finish_weight_update"])
def test_a_failure_midway_is_never_a_refusal_and_never_labelled(phase):
    engine = Recording(fails=phase)
    with pytest.raises(ValueError, match=phase):
        apply_snapshot(engine, "f", 3, "d")
    assert "version 3" not in engine.calls


@pytest.mark.parametrize(
    "echoes",
    [[None], [{**ECHO, "version": 2}], [{**ECHO, "digest": "x"}], [ECHO, None], [ECHO, {**ECHO, "tensors": 4}]],
)
def test_workers_must_all_echo_the_same_identity(echoes):
    with pytest.raises(EngineBroken):
        apply_snapshot(Recording(echoes), "f", 3, "d")


def test_a_cache_that_was_not_reset_is_an_error():
    with pytest.raises(EngineBroken, match="prefix cache"):
        apply_snapshot(Recording(cache_reset=False), "f", 3, "d")


def test_actor_refuses_before_start(run):
    actor = RolloutActor("r0")
    with pytest.raises(EngineBroken, match="engine r0 is not started"):
        run(actor.ping())
