import subprocess
import sys

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Serve
from serve import client
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

    assert client.admin_key(now({"keys": [{"name": "a"}]}), "policy") == "sk-x"
    assert client.admin_key(now({"keys": []}), "policy") is None
    assert client.admin_key({"applications": {}}, "policy") is None


def test_only_a_new_refusal_of_this_policy_counts():
    last = {"version": 2, "digest": DIGEST, "reason": "NaN"}
    replies = {"a": reply(1, "d1", 3, last), "b": reply(1, "d1", 0)}
    assert client.refused(replies, {"a": 2}, POLICY) == {"a": "NaN"}
    assert client.refused(replies, {"a": 3}, POLICY) == {}
    assert client.refused({"a": reply(1, "d1", 3, {**last, "version": 9})}, {"a": 2}, POLICY) == {}


def test_other_applications_stay_in_the_config():
    before = {"applications": {"other": {"deployed_app_config": {"name": "other"}}, "policy": {}}}
    config = client.with_app(before, {"name": "policy"}, {"host": "127.0.0.1", "port": 1, "keep_alive": 2})
    assert [entry["name"] for entry in config["applications"]] == ["other", "policy"]
    assert config["http_options"] == {"host": "127.0.0.1", "port": 1}


def test_another_port_than_serves_own_is_refused():
    before = {"proxies": {"n": {}}, "http_options": {"host": "127.0.0.1", "port": 8000}}
    assert client._http_options(before, Serve())["port"] == 8000
    with pytest.raises(UserError, match="8000"):
        client._http_options(before, Serve(port=9000))


def test_unreachable_dashboard_is_told():
    with pytest.raises(UserError, match="jobs.services up"):
        client.details("http://127.0.0.1:9")


def test_unknown_application_is_told():
    with pytest.raises(UserError, match="jobs.serve"):
        client._app_config({"applications": {}}, "policy")


def test_client_needs_neither_ray_nor_vllm():
    code = "import sys, serve; sys.exit(bool({'ray', 'vllm', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
