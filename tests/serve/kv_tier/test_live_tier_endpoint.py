"""An endpoint with KV cache tiers: what its replica tells of them, and swaps under load, there and back."""

import threading
import time

import httpx
import pytest

from pipeline.weights import read_manifest
from serve import client
from serve.effective import differences
from serve.policy import Policy, fingerprint
from tests.serve.kv_tier.test_live_tiers import snapshots
from tests.serve.live_endpoint import dashboard_of, deploy, ray_head

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

QUESTIONS = [f"{number} + " + " + ".join(str(number * k % 97) for k in range(1, 60)) + " = ?" for number in range(4)]


class Endpoint:
    def __init__(self, url, dashboard, folders):
        self.url, self.dashboard = url, dashboard
        self.policies = [Policy(m.version, str(f), m.digest, "keep") for f in folders for m in [read_manifest(f)]]

    def ask(self, question, tokens=24):
        """The mark and the text of a greedy reply."""
        body = {"model": "policy", "messages": [{"role": "user", "content": question}], "temperature": 0}
        sent = body | {"max_tokens": tokens, "ignore_eos": True, "include_reasoning": True}
        reply = httpx.post(f"{self.url}/v1/chat/completions", json=sent, timeout=120, trust_env=False)
        assert reply.status_code == 200, reply.text
        told, message = reply.json(), reply.json()["choices"][0]["message"]
        return told["system_fingerprint"], (message.get("reasoning") or "") + (message.get("content") or "")

    def answers(self, policy):
        found = [self.ask(question) for question in QUESTIONS]
        assert {mark for mark, _ in found} == {fingerprint(policy.version, policy.digest)}
        return [text for _, text in found]

    def swap(self, policy):
        client.swap(self.dashboard, policy, 120)

    def tiers(self):
        time.sleep(1.5)
        return httpx.get(f"{self.url}/admin/effective-config", timeout=60, trust_env=False).json()["kv_tiers"]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    home = tmp_path_factory.mktemp("tiers")
    folders = snapshots(home)
    tiers = f"{{dram_gib: 0.02, disk: {{path: {home / 'disk'}, max_gib: 0.05}}}}"
    with ray_head(tmp_path_factory.mktemp("services")) as head:
        deploy(head, folders[0], tmp_path_factory.mktemp("results"), engine__max_model_len=512, kv__tiers=tiers)
        dashboard = dashboard_of(head)
        yield Endpoint(client.status(dashboard).url, dashboard, folders)


def test_a_replica_runs_with_its_tiers_and_tells_of_them(endpoint):
    assert differences(client.effective(endpoint.dashboard)) == []
    endpoint.answers(endpoint.policies[0])
    told = endpoint.tiers()
    assert told["disk"]["root"].endswith(endpoint.policies[0].digest[:32])
    assert told["disk"]["stored"] == told["dram"]["stored"] > len(QUESTIONS) and told["disk"]["failed"] == 0


def test_swaps_under_load_use_nothing_of_other_weights(endpoint):
    old, new = endpoint.policies
    first = endpoint.answers(old)
    stop, failures, asked = threading.Event(), [], []

    def load(number):
        while not stop.is_set():
            try:
                asked.append(endpoint.ask(QUESTIONS[number], tokens=100)[0])
            except Exception as error:  # noqa: BLE001 - reported below, from the test's own thread
                failures.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            endpoint.swap(new)
            endpoint.swap(old)
        endpoint.swap(new)
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    assert failures == [] and len(asked) > 8
    second = endpoint.answers(new)
    assert second != first
    endpoint.swap(old)
    before = endpoint.tiers()["disk"]
    assert endpoint.answers(old) == first
    after = endpoint.tiers()["disk"]
    assert after["hits"] > before["hits"] and after["corrupt"] == 0 == after["failed"]
    endpoint.swap(new)
    assert endpoint.answers(new) == second
