"""Judges that are not to be trusted, in a short run for real: it says so, and stops or goes on as configured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.judge.judge_folders import random_judge

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "rollout.engines=1",
    "rollout.prompts_per_step=8",
    "rollout.group_size=8",
    "problems.train.0.size=64",
    "problems.train.1.size=64",
    "problems.held_out=[]",
    "learner.ranks=1",
    "learner.checkpoint_every=1",
    "learner.max_failures=0",
    "curriculum.min_batch_share=0.1",
    "judge.name=learned",
    "judge.digest=null",
    "judge.max_tokens=255",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def train(folder: Path, judge: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    preset = str(ROOT / "infra/presets/tiny.yaml")
    argv = [sys.executable, "-W", "ignore", "-m", "jobs.train", "--config", preset, *SMALL, f"judge.path={judge}"]
    dropped = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
    environment = {k: v for k, v in os.environ.items() if k not in dropped} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*argv, *overrides], cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
    )


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """Random weights: with a threshold of 0 it says yes to everything, with one of 1 no to everything."""
    return random_judge(tmp_path_factory.mktemp("judge"))


def test_one_that_says_yes_to_everything_stops_the_run(tmp_path, judge):
    done = train(tmp_path, judge, "run.name=yes", "run.steps=6", "judge.threshold=0")
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "judge: learned" in done.stdout and "digest" in done.stdout
    assert "control questions" in text and "judge.max_false_yes_rate (0.1)" in text
    assert len([line for line in done.stdout.splitlines() if line.startswith("step ")]) < 6


@pytest.mark.nightly  # its twin above runs with every change
def test_one_that_says_no_to_everything_is_warned_of(tmp_path, judge):
    done = train(tmp_path, judge, "run.name=no", "run.steps=3", "judge.threshold=1", "judge.on_absurd=warn")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith("step ")]) == 3
    warned = [line for line in lines if "judge.max_miss_rate (0.5)" in line]
    assert len(warned) == 1 and "no right segment in" in warned[0]
    assert json.loads((tmp_path / "runs/no/result.json").read_text())["steps"] == 3
