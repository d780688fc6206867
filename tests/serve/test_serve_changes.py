"""Changes of a running endpoint, against a cluster in memory: what is taken back, what stays, and whose turn it is."""

import multiprocessing
import os
import tempfile
import threading

import pytest

from serve import client
from serve.policy import Policy, Wanted, wanted_from
from serve.turns import NotMyTurn, lock_file, my_turn

V1, V2, V3 = (Policy(number, f"/{number}", f"d{number}") for number in (1, 2, 3))
KEYS = {"keys": [{"name": "a"}, {"name": "b"}]}
URL = "http://127.0.0.1:4321"
DEADLINE = 0.1


class FakeCluster:
    """One application of two replicas. Replicas take over what is asked for at the next look, but for the versions in
    `refuses` and, while `stuck`, any; a look runs `meanwhile` first, once."""

    def __init__(self, wanted):
        self.config, self.log = wanted.as_config(), []
        self.replicas = {name: {"held": wanted.for_rank(rank), "refused": [], "access": wanted.access_digest}
                         for rank, name in enumerate("ab")}  # fmt: skip
        self.refuses, self.stuck, self.status, self.silent, self.meanwhile = set(), set(), {}, 0, None

    @property
    def wanted(self):
        return wanted_from(self.config)

    def details(self, url):
        if self.meanwhile and len(self.log) > 0:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        deployment = {
            "deployment_config": {"user_config": self.config, "num_replicas": 2},
            "replicas": [{"replica_id": name, "state": "RUNNING"} for name in self.replicas],
            "target_num_replicas": 2,
        }
        app = {
            "deployed_app_config": {
                "name": "policy",
                "args": {"serve": {"drain_deadline_s": 7}},
                "deployments": [
                    {"name": "HotSwapServer:policy", "user_config": self.config, "num_replicas": 2},
                    {"name": "Router", "num_replicas": 1},
                ],
            },
            "deployments": {"HotSwapServer:policy": deployment},
            "status": self.status.get(self.wanted.policy.version, "RUNNING"),
        }
        return {"applications": {"policy": app}, "http_options": {"host": "127.0.0.1", "port": 1}}

    def put(self, url, config):
        own, *others = config["applications"][0]["deployments"]
        assert own["num_replicas"] == 2 and others == [{"name": "Router", "num_replicas": 1}]
        self.config = own["user_config"]
        self.log.append(self.wanted)

    def replies(self, now, app):
        if self.silent:
            self.silent -= 1
            return {}
        wanted = self.wanted
        for rank, replica in enumerate(self.replicas.values()):
            policy = wanted.for_rank(rank)
            if policy.version in self.refuses and policy != replica["held"]:
                replica["refused"] += [policy] if self.log and self.log[-1] is not replica.get("told") else []
                replica["told"] = self.log[-1] if self.log else None
            elif policy.version not in self.stuck:
                replica["held"] = policy
            replica["access"] = wanted.access_digest
        return {name: self._state(name, rank, replica) for rank, (name, replica) in enumerate(self.replicas.items())}

    def _state(self, name, rank, replica):
        last = replica["refused"][-1] if replica["refused"] else None
        told = {"version": last.version, "digest": last.digest, "reason": "NaN"} if last else None
        held = {"version": replica["held"].version, "digest": replica["held"].digest}
        counts = {"refusals": len(replica["refused"]), "last_refusal": told}
        return {"replica": name, "rank": rank, "access": replica["access"], **held, **counts}


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(client, "POLL_S", 0.005)
    monkeypatch.setattr(client, "ANSWER_S", 0.2)


@pytest.fixture
def cluster(monkeypatch):
    made = FakeCluster(Wanted(V1, V3, 1, KEYS))
    monkeypatch.setattr(client, "details", made.details)
    monkeypatch.setattr(client, "_put", made.put)
    monkeypatch.setattr(client, "_replies", made.replies)
    return made


def test_a_swap_keeps_the_access_settings_and_ends_the_canary(cluster):
    report = client.swap(URL, V2, DEADLINE)
    assert report.version == 2 and cluster.wanted == Wanted(V2, access=KEYS) and len(cluster.log) == 1


def test_a_refused_swap_does_not_bring_a_revoked_key_back(cluster):
    def revoke():
        cluster.config = {**cluster.config, "access": {"keys": [{"name": "b"}]}}

    cluster.refuses, cluster.meanwhile = {2}, revoke
    with pytest.raises(client.SwapRefused, match="replica a: NaN"):
        client.swap(URL, V2, DEADLINE)
    assert cluster.wanted == Wanted(V1, V3, 1, {"keys": [{"name": "b"}]})


def test_what_another_asked_for_meanwhile_stays(cluster):
    def other():
        cluster.config = Wanted(V3, access=KEYS).as_config()

    cluster.stuck, cluster.meanwhile = {2}, other
    with pytest.raises(client.SwapTimeout):
        client.swap(URL, V2, DEADLINE)
    assert cluster.wanted == Wanted(V3, access=KEYS) and len(cluster.log) == 1


@pytest.mark.parametrize(("stuck", "status", "kind"), [({2}, {}, TimeoutError), ((), {2: "UNHEALTHY"}, RuntimeError)])
def test_a_swap_that_is_not_confirmed_is_taken_back(cluster, stuck, status, kind):
    cluster.stuck, cluster.status = stuck, status
    with pytest.raises(kind, match="waiting for: a|is UNHEALTHY") as caught:
        client.swap(URL, V2, DEADLINE)
    assert "either" not in str(caught.value)
    assert cluster.wanted == Wanted(V1, V3, 1, KEYS) and cluster.log[-1] == cluster.wanted


def test_both_failures_are_told_when_the_way_back_fails_too(cluster):
    cluster.refuses, cluster.status = {2}, {1: "UNHEALTHY"}
    with pytest.raises(client.SwapRefused, match=r"NaN.*not confirmed either: application 'policy' is UNHEALTHY"):
        client.swap(URL, V2, DEADLINE)


def test_a_canary_that_does_not_end_in_time_is_not_asked_for_again(cluster):
    cluster.stuck = {1}
    with pytest.raises(client.SwapTimeout):
        client.end_canary(URL, DEADLINE)
    assert cluster.wanted == Wanted(V1, access=KEYS)


def test_an_old_refusal_is_no_new_one(cluster):
    cluster.refuses = {2}
    with pytest.raises(client.SwapRefused):
        client.swap(URL, V2, DEADLINE)
    cluster.refuses, cluster.silent = set(), 3  # the endpoint is not heard at first
    assert client.swap(URL, V2, 1).version == 2


def test_without_an_answer_before_only_time_tells(cluster):
    cluster.silent = 10**6
    with pytest.raises(client.SwapTimeout):
        client.swap(URL, V2, DEADLINE)


def test_access_settings_have_the_deployments_own_deadline(cluster, monkeypatch):
    seen = []
    monkeypatch.setattr(client, "_change", lambda url, app, deadline, change: seen.append(deadline))
    client.set_access(URL, {})
    client.set_access(URL, {}, 3)
    assert seen == [67, 3] and client.change_deadline_s(7) == 67


# --- turns ---


def hold(path, go, done):
    tempfile.tempdir = path
    with my_turn(URL, 1):
        go.set()
        done.wait(30)


def test_another_process_is_waited_for_and_named(tmp_path, cluster):
    spawned = multiprocessing.get_context("fork")
    go, done = spawned.Event(), spawned.Event()
    holder = spawned.Process(target=hold, args=(str(tmp_path), go, done))
    holder.start()
    try:
        assert go.wait(30)
        with pytest.raises(NotMyTurn, match=f"process {holder.pid}"):
            client.swap("http://localhost:4321", V2, 0.05)  # another name of the same dashboard
        assert cluster.log == []
        with my_turn("http://127.0.0.1:4322", 0):
            pass
        threading.Timer(0.2, done.set).start()
        client.swap(URL, V2, 20)
    finally:
        done.set()
        holder.join(30)
    assert cluster.wanted.policy == V2 and oct(os.stat(lock_file(URL)).st_mode)[-3:] == "600"
