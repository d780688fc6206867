import subprocess
import sys

import pytest

from pipeline.config import UserError, load_config
from pipeline.config.schema_serving import Serve
from serve import client, http_address
from serve.policy import Policy, Wanted

POLICY = Wanted(Policy(2, "/2", "d2" * 8))
DIGEST = POLICY.policy.digest


def reply(version, digest, refusals=0, last=None, rank=0, access=POLICY.access_digest):
    told = {"version": version, "digest": digest, "refusals": refusals, "last_refusal": last}
    return told | {"rank": rank, "access": access}


def test_confirmation_names_whom_it_waits_for():
    replicas = [{"replica_id": name, "state": "RUNNING"} for name in "abc"]
    replies = {"a": reply(2, DIGEST), "b": reply(1, "d1")}
    waiting = client.missing(replicas, 4, replies, POLICY)
    assert [text.split()[0] for text in waiting] == ["b", "c", "a"]
    assert "version 1" in waiting[0] and "no answer" in waiting[1] and "not there yet" in waiting[2]
    assert client.missing(replicas[:1], 1, replies, POLICY) == []


def test_right_version_with_wrong_digest_is_not_confirmed():
    replicas = [{"replica_id": "a", "state": "RUNNING"}]
    assert client.missing(replicas, 1, {"a": reply(2, "other")}, POLICY)


def test_a_canary_is_confirmed_rank_by_rank():
    wanted = Wanted(POLICY.policy, Policy(3, "/3", "d3"), 1)
    replicas = [{"replica_id": name, "state": "RUNNING"} for name in "ab"]
    replies = {"a": reply(3, "d3", rank=0), "b": reply(2, DIGEST, rank=1)}
    assert client.missing(replicas, 2, replies, wanted) == []
    swapped = {"a": reply(2, DIGEST, rank=0), "b": reply(3, "d3", rank=1)}
    assert len(client.missing(replicas, 2, swapped, wanted)) == 2


def test_other_access_settings_are_not_confirmed():
    replicas = [{"replica_id": "a", "state": "RUNNING"}]
    wanted = Wanted(POLICY.policy, access={"max_waiting": 3})
    (text,) = client.missing(replicas, 1, {"a": reply(2, DIGEST)}, wanted)
    assert "access" in text
    assert client.missing(replicas, 1, {"a": reply(2, DIGEST, access=wanted.access_digest)}, wanted) == []


def test_the_key_is_sent_only_where_there_are_keys(monkeypatch):
    monkeypatch.setenv(client.KEY_VARIABLE, "sk-x")

    def now(access):
        deployment = {"deployment_config": {"user_config": {"access": access}}}
        return {"applications": {"policy": {"deployments": {"HotSwapServer:policy": deployment}}}}

    assert client.key_headers(now({"keys": [{"name": "a"}]})) == {"authorization": "Bearer sk-x"}
    assert client.key_headers(now({"keys": []})) == client.key_headers({"applications": {}}) == {}
    monkeypatch.delenv(client.KEY_VARIABLE)
    assert client.key_headers(now({"keys": [{"name": "a"}]})) == {}


KEYED = {"user_config": {"access": {"keys": [{"name": "a"}]}}}


@pytest.mark.parametrize(
    "app",
    [
        {"deployments": {"HotSwapServer:policy": {"deployment_config": KEYED}}},
        {"deployments": {}, "status": "DEPLOYING", "deployed_app_config": {"deployments": [KEYED]}},
    ],
)
def test_a_deployment_takes_no_keys_away(monkeypatch, app):
    monkeypatch.setattr(client, "details", lambda url: {"applications": {"policy": app}})
    monkeypatch.setattr(client, "_put", lambda url, config: pytest.fail("it was deployed"))
    cfg = load_config("infra/presets/tiny.yaml", [])
    with pytest.raises(UserError, match="would then be open to all: name their file with serve.access.keys_file"):
        client.deploy("http://127.0.0.1:1", cfg, "/2", POLICY.policy)


def test_only_a_new_refusal_of_this_policy_counts():
    last = {"version": 2, "digest": DIGEST, "reason": "NaN"}
    replies = {"a": reply(1, "d1", 3, last), "b": reply(1, "d1", 0)}
    assert client.refused(replies, {"a": 2}, POLICY) == {"a": "NaN"}
    assert client.refused(replies, {"a": 3}, POLICY) == {}
    assert client.refused(replies, {}, POLICY) == {}  # not heard before: it may be an old one
    assert client.refused({"a": reply(1, "d1", 3, {**last, "version": 9})}, {"a": 2}, POLICY) == {}


def test_other_applications_stay_in_the_config():
    before = {"applications": {"other": {"deployed_app_config": {"name": "other"}}, "policy": {}}}
    config = client.with_app(before, {"name": "policy"}, {"host": "127.0.0.1", "port": 1, "keep_alive": 2})
    assert [entry["name"] for entry in config["applications"]] == ["other", "policy"]
    assert config["http_options"] == {"host": "127.0.0.1", "port": 1}


def test_another_port_than_serves_own_is_refused():
    before = {"proxies": {"n": {}}, "http_options": {"host": "127.0.0.1", "port": 8000}}
    assert http_address.http_options(before, Serve())["port"] == 8000
    with pytest.raises(UserError, match="8000"):
        http_address.http_options(before, Serve(port=9000))


def test_a_free_port_is_one_that_the_system_gives_to_nobody(monkeypatch):
    import socket

    assert http_address._free_port("127.0.0.1") in range(20_000, 30_000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(http_address, "FREE_PORTS", range(port, port + 1))
        with pytest.raises(UserError, match=f"no port of {port} to {port} is free on 127.0.0.1"):
            http_address._free_port("127.0.0.1")


def test_unreachable_dashboard_is_told():
    with pytest.raises(UserError, match="jobs.services up"):
        client.details("http://127.0.0.1:9")


@pytest.mark.parametrize("address", ["http://a:b", "http://[::1", "nonsense"])
def test_an_address_that_is_none_is_told(address):
    with pytest.raises(UserError):
        client.details(address)


def test_unknown_application_is_told():
    with pytest.raises(UserError, match="jobs.serve"):
        client._app_config({"applications": {}}, "policy")


def test_client_needs_neither_ray_nor_vllm():
    code = "import sys, serve; sys.exit(bool({'ray', 'vllm', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def serving(monkeypatch, *, host="127.0.0.1", policy="fcfs", **options):
    """Stands in for a cluster that runs the application; returns the changes asked for."""
    config = {"user_config": POLICY.as_config(), **options}
    deployment = {"deployment_config": config, "replicas": [], "target_num_replicas": 1}
    app = {
        "deployed_app_config": {"name": "policy", "args": {"levers": {"admission": {"policy": policy}}}},
        "deployments": {"HotSwapServer:policy": deployment},
    }
    now = {"applications": {"policy": app}, "http_options": {"host": host, "port": 1}}
    asked = []
    monkeypatch.setattr(client, "details", lambda url: now)
    monkeypatch.setattr(client, "_change", lambda url, app, deadline, change: asked.append(change(POLICY)))
    return asked


def a_key(**options):
    return {"name": "a", "digest": "0" * 64, "scope": "infer", "created": 1.0, **options}


def test_settings_without_keys_are_for_loopback(monkeypatch):
    asked = serving(monkeypatch, host="0.0.0.0", num_replicas=1)
    with pytest.raises(UserError, match=r"listens on 0\.0\.0\.0.*keys"):
        client.set_access("http://d", {"keys": []}, 1)
    client.set_access("http://d", {"keys": [a_key()]}, 1)
    assert len(asked) == 1


def test_settings_whose_priority_the_engine_refuses(monkeypatch):
    asked = serving(monkeypatch, num_replicas=1)
    with pytest.raises(UserError, match="priority 3"):
        client.set_access("http://d", {"keys": [a_key(priority=3)]}, 1)
    with pytest.raises(UserError, match="max_waiting"):
        client.set_access("http://d", {"max_wating": 3}, 1)
    assert asked == []
    asked = serving(monkeypatch, policy="priority", num_replicas=1)
    client.set_access("http://d", {"keys": [a_key(priority=3)]}, 1)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("options", "replicas"),
    [({"num_replicas": 3}, 3), ({"autoscaling_config": {"min_replicas": 1, "max_replicas": 5}}, 5), ({}, 2)],
)
def test_shares_of_a_rate_follow_the_deployment(monkeypatch, options, replicas):
    asked = serving(monkeypatch, **options)
    client.set_access("http://d", {"replicas": 2}, 1)
    assert asked[0].access["replicas"] == replicas


def test_a_canary_leaves_what_autoscaling_always_keeps(monkeypatch):
    serving(monkeypatch, autoscaling_config={"min_replicas": 1, "max_replicas": 5})
    two = client.Endpoint("", "", {"a": {}, "b": {}})
    monkeypatch.setattr(client, "status", lambda url, app: two)
    with pytest.raises(UserError, match=r"none of 1 replicas.*autoscaling\.min_replicas"):
        client.start_canary("http://d", Policy(3, "/3", "d3"), 1, 1)
    asked = serving(monkeypatch, num_replicas=2)
    client.start_canary("http://d", Policy(3, "/3", "d3"), 1, 1)
    assert asked[0].canary_replicas == 1


def test_replicas_that_come_and_go_are_waited_for():
    replies = {"a": reply(2, DIGEST)}
    going = [{"replica_id": "a", "state": "RUNNING"}, {"replica_id": "b", "state": "STOPPING"}]
    assert client.missing(going, 1, replies, POLICY) == ["b (STOPPING, no answer)"]
    assert client.missing(going[:1], 2, replies, POLICY) == ["a replica that is not there yet"]
    coming = [going[0], {"replica_id": "c", "state": "STARTING"}]
    assert client.missing(coming, 2, replies, POLICY) == ["c (STARTING, no answer)"]


def test_the_effective_config_is_asked_for_with_the_key(monkeypatch):
    serving(monkeypatch, num_replicas=1)
    told = {"replica": "a", "requested": {"max_num_seqs": 4}, "effective": {"max_num_seqs": 8}}
    asked = []

    def get(url, headers, **options):
        asked.append((url, headers))
        return client.httpx.Response(status, json=told)

    monkeypatch.setattr(client.httpx, "get", get)
    status = 200
    assert [(row.name, row.requested, row.effective, row.differs) for row in client.effective("http://d")] == [
        ("max_num_seqs", 4, 8, True)
    ]
    assert asked == [("http://127.0.0.1:1/admin/effective-config", {})]
    status = 401
    with pytest.raises(UserError, match=client.KEY_VARIABLE):
        client.effective("http://d")
    status = 503
    with pytest.raises(UserError, match="does not answer"):
        client.effective("http://d")
