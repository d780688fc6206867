"""Promotion for real: two replicas, MLflow, and candidates that are better, noisy, hasty and long-winded."""

import os
import random
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import torch

import jobs.serve
from jobs import services
from jobs._services import read_state
from pipeline.config import load_config
from pipeline.problems import load_problems
from pipeline.problems.tiny_lessons import PLAIN, demonstrate
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.storage import open_storage
from pipeline.tracking import Registry, Tracker
from pipeline.weights import write_snapshot
from serve import client
from serve.policy import fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "infra/models/tiny"
PRESET = str(ROOT / "infra/presets/tiny.yaml")
QUICK = (
    "judge.name=exact",
    "problems.held_out.0.size=40",
    "problems.held_out.1.size=40",
    "engine.max_num_seqs=64",
    "engine.kv_cache_bytes=67108864",
    "serve.replicas=2",
    "serve.cpus_per_replica=0.2",
    "serve.start_deadline_s=500",
    "gate.soak_s=5",
    "gate.replay=40",
    "gate.min_canary_requests=8",
    "gate.max_accuracy_drop=0.15",  # few problems
)
STEPS, ROWS = 150, 16
AGAIN = 4  # times that the answer is repeated
START, SHORT, NOISY, HASTY, LONG = range(5)


def start_model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)


def taught(write, state=None):
    """The shipped model, or `state`, after a few steps on responses `write(problem, rng)`."""
    torch.manual_seed(0)
    rng, tokenizer, model = random.Random(0), build_tokenizer(), start_model()
    model.load_state_dict(state or model.state_dict())
    problems = load_problems(load_config(PRESET, []).problems.train, 0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, STEPS)
    for _ in range(STEPS):
        rows = [_lesson(tokenizer, problem, write(problem, rng)) for problem in rng.choices(problems, k=ROWS)]
        ids = torch.nn.utils.rnn.pad_sequence([row for row, _ in rows], True, 0)
        labels = torch.nn.utils.rnn.pad_sequence([row for _, row in rows], True, -100)
        loss = model(ids, attention_mask=ids != 0, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.state_dict()


def _lesson(tokenizer, problem, response):
    said = [{"role": "user", "content": problem.prompt}]
    text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer.encode(text, add_special_tokens=False)
    ids = prompt + tokenizer.encode(response + "<eos>", add_special_tokens=False)
    return torch.tensor(ids), torch.tensor([-100] * len(prompt) + ids[len(prompt) :])


def noisy(state):
    torch.manual_seed(1)
    own = {name: value for name, value in state.items() if name != "lm_head.weight"}  # it is tied to the embedding
    return {name: value + value.std() * torch.randn_like(value) for name, value in own.items()}


def said_again(problem, rng):
    """As right as PLAIN, and half as long again."""
    response = demonstrate(problem, PLAIN, rng)
    return response + AGAIN * response[response.index("</think>") + len("</think>") :]


def candidates():
    """By version: what is served at first, the same in fewer words, and three that must not stay."""
    start = start_model().state_dict()
    short = taught(lambda problem, rng: demonstrate(problem, PLAIN, rng))
    return {
        START: start,
        SHORT: short,
        NOISY: noisy(start),
        HASTY: taught(lambda problem, rng: "</think>\nThe answer is \\boxed{99}."),
        LONG: taught(said_again, short),
    }


class World:
    """The services, the registered candidates and the commands."""

    def __init__(self, home):
        self.home, self.folder = home, str(home / "services")
        running = services.up(self.folder)
        self.tracking = running["mlflow"].urls["mlflow"]
        self.options = [*QUICK, f"storage.uri={home}/runs", f"tracking.uri={self.tracking}"]
        self.cfg = load_config(PRESET, self.options)
        self.registry = Registry.open(self.tracking, "policy")
        self.dashboard = read_state(Path(self.folder))["ray"].urls["dashboard"]

    def register(self):
        """Snapshots in storage and in the registry; numbers are versions + 1."""
        store, tracker = open_storage(self.cfg.storage), Tracker(self.tracking)
        tracker.start("candidates", {})
        made = {}
        for version, state in candidates().items():
            snapshot = write_snapshot(
                self.home / "made" / f"v{version}",
                state,
                version=version,
                step=version,
                parent=None,
                config_digest="test",
                serving_dtype="float32",
                model_dir=TINY,
            )
            key = f"candidates/snapshots/v{version}"
            store.put_folder(snapshot.uri, key)
            found = tracker.register_version(
                store.uri(key), version=version, digest=snapshot.manifest.digest, step=version, config_digest="test"
            )
            assert found.number == version + 1
            made[version] = snapshot
        tracker.set_alias("champion", START + 1)
        tracker.finish()
        return made

    def run(self, name, *argv, expect):
        dropped = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
        environment = {k: v for k, v in os.environ.items() if k not in dropped} | {"PYTHONPATH": str(ROOT)}
        words, overrides = [a for a in argv if "=" not in a], [a for a in argv if "=" in a]
        command = [sys.executable, "-W", "ignore", "-m", f"jobs.{name}", *words, "--services", self.folder]
        done = subprocess.run(
            [*command, "--config", PRESET, *self.options, *overrides],
            cwd=self.home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def serving(self):
        """(version, canary) of each replica."""
        return sorted((s["version"], bool(s["canary"])) for s in client.status(self.dashboard).replicas.values())

    def tags(self, version):
        found = self.registry._client.get_model_version("policy", str(version + 1))
        return {key: value for key, value in found.tags.items() if key.startswith(("gate.", "rollback."))}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    home = tmp_path_factory.mktemp("promotion")
    try:
        made = World(home)
        made.snapshots = made.register()
        arguments = ["--services", made.folder, "--config", PRESET, *made.options]
        assert jobs.serve.command([*arguments, f"model.path={made.snapshots[START].uri}"]) == 0
        yield made
    finally:
        services.down(home / "services")


def mark(world):
    endpoint = client.status(world.dashboard)
    body = {"model": endpoint.model_id, "messages": [{"role": "user", "content": "3 + 4 = ?"}], "max_tokens": 2}
    reply = httpx.post(f"{endpoint.url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()["system_fingerprint"]


def test_a_better_model_reaches_users_and_bad_ones_do_not(world):
    told = world.run("promote", "--candidate", str(SHORT + 1), expect=0)
    assert "was promoted in" in told and world.serving() == [(SHORT, False)] * 2
    assert mark(world) == fingerprint(SHORT, world.snapshots[SHORT].manifest.digest)
    assert world.registry.aliases() == {"champion": SHORT + 1, "previous": START + 1}
    assert world.tags(SHORT)["gate.decision"] == "promoted" and "gate.tokens_ratio" in world.tags(SHORT)

    for version, limit in ((NOISY, "accuracy"), (HASTY, "accuracy"), (LONG, "tokens ratio")):
        told = world.run("promote", "--candidate", str(version + 1), expect=1)
        assert "was refused: " in told and limit in world.tags(version)["gate.reason"]
        assert "measuring v1-" not in told  # the champion's figures are known
        assert world.serving() == [(SHORT, False)] * 2

    # let through the gate, its replies take longer: the canary's replica shows it and goes back by itself
    loose = ("gate.max_tokens_ratio=20", "gate.max_truncation_rate=1", "gate.max_accuracy_drop=0.3")
    loose += ("gate.max_latency_ratio=1.2", "gate.min_canary_requests=60", "gate.soak_s=20", "gate.replay=200")
    told = world.run("promote", "--candidate", str(LONG + 1), *loose, expect=1)
    assert "was rolled back: " in told and "latency ratio" in told and world.serving() == [(SHORT, False)] * 2
    assert world.tags(LONG)["gate.decision"] == "rolled back"
    assert world.registry.aliases() == {"champion": SHORT + 1, "previous": START + 1}

    told = world.run("canary", "start", "--candidate", "previous", expect=0)
    assert world.serving() == [(START, True), (SHORT, False)]
    assert "a canary of v0-" in world.run("promote", "--candidate", str(LONG + 1), expect=2)
    world.run("canary", "end", expect=0)
    assert world.serving() == [(SHORT, False)] * 2

    told = world.run("rollback", "--reason", "test", expect=0)
    assert "rolled back to policy 1 (v0-" in told and world.serving() == [(START, False)] * 2
    assert world.registry.aliases() == {"champion": START + 1, "previous": SHORT + 1}
    assert world.tags(SHORT)["rollback.reason"] == "test"
