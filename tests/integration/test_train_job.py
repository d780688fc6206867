"""The whole loop for real, small: the shipped tiny model, vLLM engines, judge, DeepSpeed ranks, MLflow, storage."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline.weights import read_manifest

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "rollout.engines=1",
    "rollout.prompts_per_step=6",
    "rollout.group_size=4",
    "problems.train.0.size=64",
    "problems.train.1.size=64",
    "publish.every=2",
    "run.report_problems=12",
    "learner.checkpoint_every=1",
    "learner.max_failures=0",
    "curriculum.min_batch_share=0.1",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def command(*overrides: str) -> list[str]:
    preset = str(ROOT / "infra/presets/tiny.yaml")
    return [sys.executable, "-W", "ignore", "-m", "jobs.train", "--config", preset, *SMALL, *overrides]


def environment() -> dict[str, str]:
    dropped = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
    return {k: v for k, v in os.environ.items() if k not in dropped} | {"PYTHONPATH": str(ROOT)}


def train(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*overrides), cwd=folder, env=environment(), capture_output=True, text=True, timeout=500, check=False
    )


def test_a_run_trains_publishes_and_resumes(tmp_path):
    done = train(tmp_path, "run.name=whole", "run.steps=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("step ")] == ["1/2", "2/2"]
    result = json.loads((tmp_path / "runs/whole/result.json").read_text())
    assert (result["steps"], result["version"]) == (2, 2)
    assert result["ledger"]["issued"] == result["ledger"]["scored"] == 0 < result["ledger"]["trained"]
    (published,) = result["publications"]
    kept = read_manifest(tmp_path / "runs/whole/snapshots/v2")
    assert (published["version"], published["digest"], kept.digest) == (2, kept.digest, result["digest"])

    page = Path(result["report"]).read_text(encoding="utf-8")
    assert "12 held-out problems, 1 reply each" in page and "version 2" in page and ">v2<" not in page

    again = train(tmp_path, "run.name=whole", "run.steps=3")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [line.split()[1] for line in again.stdout.splitlines() if line.startswith("step ")] == ["3/3"]
    resumed = json.loads((tmp_path / "runs/whole/result.json").read_text())
    assert resumed["version"] == 3 and resumed["mlflow_run_id"] == result["mlflow_run_id"]
    assert resumed["ledger"]["trained"] > result["ledger"]["trained"]
    measured = [json.loads((tmp_path / f"runs/whole/report/{name}.json").read_text()) for name in ("before", "after")]
    assert [one["version"] for one in measured] == [0, 3]
    assert "before training: 12 held-out" in done.stdout and "after training: 12 held-out" in again.stdout


def test_a_learning_rate_of_zero_changes_nothing(tmp_path):
    done = train(tmp_path, "run.name=still", "run.steps=2", "learner.lr=0")
    assert done.returncode == 0, done.stdout + done.stderr
    snapshots = sorted((tmp_path / "runs/still/snapshots").glob("v*"))
    digests = {read_manifest(folder).digest for folder in snapshots if folder.is_dir()}
    assert len(digests) == 1 and len(snapshots) >= 3  # the start's and each step's


def test_too_few_cpus_is_told_at_once(tmp_path):
    began = time.monotonic()
    done = train(tmp_path, "run.name=large", "learner.ranks=64")
    assert done.returncode == 2 and time.monotonic() - began < 120
    assert "the cluster is too small: needs" in done.stderr and "64 learner rank" in done.stderr


@pytest.mark.chaos
def test_ctrl_c_leaves_no_process(tmp_path):
    process = subprocess.Popen(
        command("run.name=stopped", "run.steps=50"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        for line in process.stdout:
            if line.startswith("engines ready"):
                break
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 130
        _, alive = psutil.wait_procs(family, timeout=60)
        assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
