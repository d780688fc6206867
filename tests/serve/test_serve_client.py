import subprocess
import sys

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Serve
from serve import client
from serve.policy import Policy

POLICY = Policy(2, "/2", "d2" * 8)


def reply(version, digest, refusals=0, last=None):
    return {"version": version, "digest": digest, "refusals": refusals, "last_refusal": last}


def test_confirmation_names_whom_it_waits_for():
    replicas = [{"replica_id": name, "state": "RUNNING"} for name in "abc"]
    replies = {"a": reply(2, POLICY.digest), "b": reply(1, "d1")}
    waiting = client.missing(replicas, 4, replies, POLICY)
    assert [text.split()[0] for text in waiting] == ["b", "c", "a"]
    assert "version 1" in waiting[0] and "no answer" in waiting[1] and "not there yet" in waiting[2]
    assert client.missing(replicas[:1], 1, replies, POLICY) == []


def test_right_version_with_wrong_digest_is_not_confirmed():
    replicas = [{"replica_id": "a", "state": "RUNNING"}]
    assert client.missing(replicas, 1, {"a": reply(2, "other")}, POLICY)


def test_only_a_new_refusal_of_this_policy_counts():
    last = {"version": 2, "digest": POLICY.digest, "reason": "NaN"}
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
