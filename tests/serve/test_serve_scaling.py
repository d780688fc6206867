"""How many replicas, and what is refused before an endpoint is deployed."""

import warnings

import pytest

from pipeline.config import UserError, load_config
from serve.access import AccessSettings
from serve.access.keys import Key, write_keys
from serve.access.settings import check_open
from serve.arguments import app_args, config_of
from serve.preconditions import check_priorities, checked_access
from serve.scaling import replica_options, replicas_text, target_requests


def cfg(*overrides):
    return load_config(None, list(overrides))


def key(priority=None, name="night"):
    return Key(name, "0" * 64, "infer", 1.0, priority=priority)


def test_without_a_maximum_the_count_is_fixed():
    assert replica_options(cfg("serve.replicas=3")) == {"num_replicas": 3}
    assert replicas_text(cfg("serve.replicas=3")) == "3 replica(s)"


def test_autoscaling_aims_at_half_of_what_an_engine_runs():
    asked = cfg("serve.autoscaling={min_replicas: 2, max_replicas: 5, downscale_delay_s: 60}", "engine.max_num_seqs=32")
    options = replica_options(asked)
    assert set(options) == {"autoscaling_config"}
    found = options["autoscaling_config"]
    assert (found["min_replicas"], found["max_replicas"], found["target_ongoing_requests"]) == (2, 5, 16)
    assert (found["upscale_delay_s"], found["downscale_delay_s"], found["look_back_period_s"]) == (10, 60, 10)
    assert replicas_text(asked) == "2 to 5 replicas, 16 requests each,"
    assert target_requests(cfg("serve.autoscaling={max_replicas: 2, target_ongoing_requests: 3}")) == 3


@pytest.mark.parametrize(("delay", "window"), [(0, 3), (7, 7), (100, 30)])
def test_the_mean_is_over_no_longer_than_the_delay(delay, window):
    options = replica_options(cfg(f"serve.autoscaling={{max_replicas: 2, upscale_delay_s: {delay}}}"))
    assert options["autoscaling_config"]["look_back_period_s"] == window


def test_serve_takes_the_options_as_they_are():
    from ray.serve.config import AutoscalingConfig

    asked = replica_options(cfg("serve.autoscaling={max_replicas: 4}"))["autoscaling_config"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # a window not above the interval will be refused
        taken = AutoscalingConfig(**asked)
    assert {name: getattr(taken, name) for name in asked} == asked


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["serve.autoscaling.min_replicas=2"], "does nothing without max_replicas"),
        (["serve.autoscaling={min_replicas: 3, max_replicas: 2}"], "above max_replicas"),
        (["serve.autoscaling.max_replicas=2", "serve.replicas=2"], "min_replicas"),
        (["serve.routing_imbalance=4"], "routing is 'prefix'"),
        (["serve.routing=random"], "least_connections"),
    ],
)
def test_options_that_do_nothing_are_refused(overrides, says):
    with pytest.raises(UserError, match=says):
        cfg(*overrides)


def test_replicas_get_these_options_with_their_arguments():
    asked = cfg("serve.autoscaling.max_replicas=3", "serve.routing=prefix", "serve.routing_imbalance=2")
    assert config_of(app_args(asked, "/m")).serve == asked.serve


def test_a_target_that_no_replica_reaches():
    for limit in ("serve.access.max_waiting=16", "admission.max_requests=10"):
        with pytest.raises(UserError, match="no replica would be added"):
            checked_access(cfg("serve.autoscaling.max_replicas=2", "engine.max_num_seqs=32", limit))
        checked_access(cfg("engine.max_num_seqs=32", limit))


def test_a_keys_share_is_that_of_the_most_replicas():
    assert checked_access(cfg("serve.autoscaling.max_replicas=4")).replicas == 4
    assert checked_access(cfg("serve.replicas=2")).replicas == 2


def test_a_key_with_a_priority_needs_the_policy(tmp_path):
    write_keys(tmp_path / "keys.json", [key(5)])
    named = f"serve.access.keys_file={tmp_path}/keys.json"
    with pytest.raises(UserError, match=r"'night' has priority 5.*admission\.policy=priority"):
        checked_access(cfg(named))
    assert checked_access(cfg(named, "admission.policy=priority")).keys[0].priority == 5
    check_priorities(AccessSettings((key(0), key(None, "day"))), "fcfs")


def test_other_machines_reach_no_endpoint_without_keys():
    with pytest.raises(UserError, match=r"jobs\.keys add"):
        check_open((), "0.0.0.0", "the endpoint listens on")
    check_open((key(),), "0.0.0.0", "")
    check_open((), "127.0.0.1", "")
