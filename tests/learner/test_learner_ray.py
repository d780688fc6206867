"""The train function under Ray Train, against a small controller actor; the worker group dies once on the way."""

import importlib.util
import json
from pathlib import Path

import pytest

from pipeline.config import RunConfig, UserError
from pipeline.learner import launch, rank_batches

_spec = importlib.util.spec_from_file_location("tiny_llama", Path(__file__).with_name("tiny_llama.py"))
tiny_llama = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_llama)

NAMESPACE = "test"


def settings(folder: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "run": {"name": "learner-test", "steps": 3},
            "model": {"path": str(folder / "model")},
            "engine": {"max_model_len": 64},
            "rollout": {"max_new_tokens": 32, "temperature": 0.8},
            "learner": {
                "ranks": 2,
                "zero_stage": 2,
                "lr": 1e-2,
                "micro_batch_tokens": 64,
                "checkpoint_every": 2,
                "max_failures": 1,
                "cpus_per_rank": 0.5,
            },
            "loop": {"step_deadline_s": 120},
        }
    )


class FakeController:
    """Hands out batches made beforehand, notes every call, and fails the first attempt at step 2."""

    def __init__(self, batches: list) -> None:
        self.batches, self.calls, self.tokens = batches, [], []

    def begin_attempt(self, token: str) -> int:
        if token not in self.tokens:
            self.tokens.append(token)
        return self.tokens.index(token) + 1

    def restore(self, attempt: int, state: object) -> None:
        self.calls.append(["restore", attempt, state])

    def publish(self, attempt: int, step: int, version: int, folder: str, digest: str) -> None:
        assert json.loads((Path(folder) / "manifest.json").read_text())["digest"] == digest
        self.calls.append(["publish", attempt, step, version, digest])

    def next_batch(self, attempt: int, step: int, rank: int) -> object:
        self.calls.append(["next_batch", attempt, step, rank])
        return self.batches[step][rank]

    def step_done(self, attempt: int, step: int, rank: int, metrics: dict) -> None:
        self.calls.append(["step_done", attempt, step, rank, metrics["loss"]])
        if attempt == 1 and step == 2 and rank == 1:
            raise RuntimeError("the first attempt ends here")

    def state(self, attempt: int, step: int) -> dict:
        return {"trained": step}

    def checkpointed(self, attempt: int, step: int, info: dict) -> None:
        self.calls.append(["checkpointed", attempt, step, info["version"]])

    def heard(self) -> list:
        return self.calls


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_attempt_resumes_with_its_own_weights_state_and_versions(local_ray, tmp_path):
    tiny_llama.make_model(tmp_path / "model")
    cfg = settings(tmp_path)
    batches = [
        rank_batches(tiny_llama.make_streams(step), batch_id=str(step), ranks=2, max_tokens=64) for step in range(3)
    ]
    actor = local_ray.remote(num_cpus=0)(FakeController).options(name="controller", max_concurrency=1).remote(batches)
    launch.fit(cfg, "controller", NAMESPACE, str(tmp_path / "run"), str(tmp_path / "storage"))
    calls = local_ray.get(actor.heard.remote(), timeout=30)

    first = [call for call in calls if call[1] == 1]
    second = [call for call in calls if call[1] == 2]
    assert first[0] == ["restore", 1, None] and first[1][:4] == ["publish", 1, -1, 0]
    assert second[0] == ["restore", 2, {"trained": 1}], "the state saved with the checkpoint of step 1"
    assert second[1][:4] == ["publish", 2, 1, 2], "the checkpoint's weights go out before the first batch is asked for"
    published = {(call[1], call[3]): call[4] for call in calls if call[0] == "publish"}
    assert published[2, 2] == published[1, 2]
    assert [version for attempt, version in published if attempt == 2] == [2, 3]
    assert len({published[1, 0], published[1, 1], published[1, 2], published[2, 3]}) == 4
    assert {call[2] for call in second if call[0] == "next_batch"} == {2}
    losses = {attempt: {call[4] for call in calls if call[:3] == ["step_done", attempt, 2]} for attempt in (1, 2)}
    assert losses[1] == losses[2] and len(losses[1]) == 1, "the replayed step is the same step"
    assert [call[1:] for call in calls if call[0] == "checkpointed"] == [[1, 1, 2], [2, 2, 3]]
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    with pytest.raises(UserError, match="run.resume is false but .* holds the training state"):
        run = cfg.run.model_copy(update={"resume": False})
        launch.fit(cfg.model_copy(update={"run": run}), "c", "n", "r", str(tmp_path / "storage"))


def test_a_row_that_cannot_fit_is_refused_at_start(tmp_path):
    cfg = settings(tmp_path)
    small = cfg.model_copy(update={"learner": cfg.learner.model_copy(update={"micro_batch_tokens": 63})})
    with pytest.raises(UserError, match="learner.micro_batch_tokens=63 cannot hold one row of engine.max_model_len=64"):
        launch.fit(small, "c", "n", str(tmp_path), str(tmp_path))
