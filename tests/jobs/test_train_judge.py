"""Teaching a judge: what is checked before anything starts, and a very short teaching for real."""

import json
import os
import subprocess
import sys

import pytest

from jobs._cli import run_command
from jobs.train_judge import _plan, main
from pipeline.config import ROOT
from pipeline.config.schema import Judge
from pipeline.judge import LearnedJudge
from pipeline.weights import read_manifest

PRESET = str(ROOT / "infra/presets/judge.yaml")


def command(*overrides):
    return run_command("train_judge", "x", main, plan=_plan, argv=["--config", PRESET, *overrides])


def test_a_dry_run_says_what_would_start(capsys):
    assert command("--dry-run", "judge_training.steps=50") == 0
    plan = capsys.readouterr().out.split("# would start:")[1]
    assert "1 traces each of 1000 training problems" in plan and "300 search, 300 compare" in plan
    assert "labels by exact" in plan and "50 supervised steps" in plan and "a new Llama of 2 layers" in plan


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["problems.train=[{kind: jsonl, path: x.jsonl}]"], "set both, and short_steps, to 0"),
        (["problems.held_out=[]"], "not to be trusted unmeasured"),
        (["learner.micro_batch_tokens=100"], "cannot hold one prompt of judge.max_tokens"),
        (["model.path=nowhere"], "no model folder"),
        (["judge_training.labeller=endpoint"], "needs endpoint_url"),
    ],
)
def test_mistakes_are_told_before_anything_starts(overrides, why, capsys, tmp_path):
    assert command(*overrides, f"storage.uri={tmp_path}") == 2
    assert why in capsys.readouterr().err


SMALL = (
    "problems.train.0.size=30",
    *(f"problems.held_out.{number}.size=12" for number in range(3)),
    "judge_training.altered=200",
    "judge_training.short=200",
    "judge_training.short_steps=3",
    "judge_training.validation=0.3",
    "judge_training.checkpoint_every=2",
    "judge_training.tokens_per_step=1024",
    "learner.ranks=2",
    "learner.max_failures=0",
    "run.name=small",
)


def run(folder, *overrides):
    argv = [sys.executable, "-W", "ignore", "-m", "jobs.train_judge", "--config", PRESET, *SMALL, *overrides]
    kept = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")}
    done = subprocess.run(
        argv, cwd=folder, env=kept | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1700)
def test_a_short_teaching_measures_registers_and_goes_on(tmp_path):
    out = run(tmp_path, "judge_training.steps=5")
    folder = tmp_path / "runs/small"
    assert "registered as judge version 1" in out and "search (never seen), own answer" in out
    report = json.loads((folder / "report/report.json").read_text())
    assert report["judge"]["digest"] == read_manifest(folder / "model").digest
    assert report["learned_from"] == ["tiny/chain_sum"]
    families = report["families"]
    assert {name: found["seen"] for name, found in families.items()} == {
        "validation": True, "tiny/chain_sum": True, "tiny/search": False, "tiny/compare": False,
    }  # fmt: skip
    for found in families.values():
        assert found["own"]["n"] == found["other"]["n"] > 0 and len(found["sweep"]) > 5 and found["calibration"]
        assert found["prefixes"]["tokens_per_trace"] > 0 and found["prefixes"]["seconds_per_trace"] > 0
    assert {"calibration.png", "thresholds.png", "report.txt"} <= {file.name for file in (folder / "report").iterdir()}
    judge = LearnedJudge(Judge(name="learned", path=str(folder / "model"), max_tokens=511))
    assert judge.describe()["digest"] == report["judge"]["digest"]

    traces = next(folder.glob("data/*/traces.jsonl"))
    written = traces.stat().st_mtime_ns
    again = run(tmp_path, "judge_training.steps=7")
    assert "registered as judge version 2" in again
    assert traces.stat().st_mtime_ns == written and len(list(folder.glob("data/*"))) == 1
    longer = json.loads((folder / "report/report.json").read_text())
    assert longer["judge"]["digest"] != report["judge"]["digest"]
