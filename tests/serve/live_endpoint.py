"""Real endpoints for tests: a Ray head of their own, and the shipped model on it; or one that runs already."""

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

import jobs.serve
from jobs import services
from jobs._services import family, read_state
from serve import client

SHIPPED = Path(__file__).resolve().parents[2] / "infra/models/tiny"
STATE_TRIES = 12  # of up to 5 s
RUNNING = "TEST_ENDPOINT_URL"  # of an endpoint of the shipped model, to try tests against instead of starting one


@dataclass(frozen=True)
class LiveEndpoint:
    """`dashboard` is None where the test did not start the endpoint."""

    url: str
    dashboard: str | None

    def states(self):
        """What each replica says of itself; on a busy machine some need more than the time they are given."""
        for _ in range(STATE_TRIES):
            reply = httpx.get(f"{self.url}/admin/version", timeout=60, trust_env=False)
            assert reply.status_code == 200, reply.text
            told = reply.json()
            if not told["silent"]:
                return told["replicas"]
        raise AssertionError(f"replicas do not answer: {told['silent']}")

    def busy(self):
        """Requests inside or before the gate of any replica."""
        return sum(state["inside"] + state["waiting"] for state in self.states())

    def count(self, name):
        """Sum of `requests`, `failed` or `left` over replicas and weights."""
        return sum(served[name] for state in self.states() for served in state["served"].values())

    def memory(self):
        """Resident bytes of each replica, by pid."""
        return {state["pid"]: psutil.Process(state["pid"]).memory_info().rss for state in self.states()}


@contextmanager
def ray_head(folder):
    """The folder of a Ray head's state; afterwards none of its processes may be left."""
    members = []
    try:
        service = services.up(folder, only=("ray",))["ray"]
        yield folder
        members = family(service)
    finally:
        services.down(folder)
    assert len(members) > 8
    assert [process for process in members if process.is_running() and process.status() != "zombie"] == []


def dashboard_of(head):
    return read_state(head)["ray"].urls["dashboard"]


def deploy(head, model, results, **options):
    """Deploys by the command, from a plain model folder; options are written with `__` for dots."""
    usual = {"engine__max_num_seqs": 32, "engine__kv_cache_bytes": 64 << 20, "serve__start_deadline_s": 400}
    pairs = {"model__path": model, "storage__uri": results} | usual | options
    written = [f"{name.replace('__', '.')}={value}" for name, value in pairs.items()]
    assert jobs.serve.command(["--services", str(head), *written]) == 0


@contextmanager
def shipped_model(tmp_path_factory, **options):
    """An endpoint of the shipped model; it parts reasoning from answers and has a context of 512 tokens."""
    if url := os.environ.get(RUNNING):
        yield LiveEndpoint(url, None)
        return
    with ray_head(tmp_path_factory.mktemp("services")) as head:
        deploy(head, SHIPPED, tmp_path_factory.mktemp("results"), engine__max_model_len=512, **options)
        dashboard = dashboard_of(head)
        yield LiveEndpoint(client.status(dashboard).url, dashboard)
