"""A whole comparison for real, small: two arms, trained, measured, reported, and not run again."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipeline.config import ROOT

SMALL = (
    "run.name=small",
    "run.steps=2",
    "rollout.engines=1",
    "rollout.prompts_per_step=6",
    "rollout.group_size=4",
    "problems.train.0.size=64",
    "problems.train.1.size=64",
    "problems.held_out.0.size=6",
    "problems.held_out.1.size=6",
    "problems.held_out.2.size=6",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def command(*more):
    return [sys.executable, "-W", "ignore", "-m", "jobs.compare", "--arms", "decs,grpo", "--seeds", "1", *SMALL, *more]


def environment():
    dropped = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
    return {k: v for k, v in os.environ.items() if k not in dropped} | {"PYTHONPATH": str(ROOT)}


def compare(folder, *more):
    return subprocess.run(
        command(*more), cwd=folder, env=environment(), capture_output=True, text=True, timeout=800, check=False
    )


@pytest.mark.nightly
def test_two_arms_are_compared_and_a_second_call_runs_nothing(tmp_path):
    from mlflow import MlflowClient

    done = compare(tmp_path, "--write-docs", "page/results.md")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "runs/small/compare.json").read_text())
    assert found["budget"] == {"traces_per_arm": 48, "equal": True, "complaints": []} and found["failures"] == []
    assert list(found["arms"]) == ["decs", "grpo"] and set(found["start"]["seeds"]) == {"0"}
    for name in ("decs", "grpo"):
        one = found["arms"][name]["seeds"]["0"]
        assert one["traces"] == 48 and one["tokens_sampled"] > 48 and one["seconds"]["train"] > 0
        assert set(one["by_family"]) == {"chain_sum", "compare", "search"}
        for figures in (one, *one["by_family"].values()):
            assert {"accuracy", "tokens_mean", "nrp_share", "tokens_per_correct", "aes"} <= set(figures)
        assert len(one["curves"]["accuracy"]) == 2
    page = (tmp_path / "page/results.md").read_text()
    assert "| decs |" in page and (tmp_path / "page/images/compare_tradeoff.png").is_file()

    client = MlflowClient(f"sqlite:///{tmp_path / 'runs/mlflow.db'}")
    experiment = client.get_experiment_by_name("decs").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert set(runs) == {"small", "small.decs-s0", "small.grpo-s0"}
    parent = runs["small"]
    for name in ("small.decs-s0", "small.grpo-s0"):
        assert runs[name].data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert runs[name].info.status == "FINISHED" and "eval/accuracy" in runs[name].data.metrics
    assert parent.info.status == "FINISHED"
    kept = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert {"compare.json", "compare.txt", "figures"} <= kept

    again = compare(tmp_path)
    assert again.returncode == 0 and "3 measurements, 3 done before" in again.stdout
    changed = compare(tmp_path, "learner.lr=1e-5")
    assert changed.returncode == 2 and "made with another config" in changed.stderr


@pytest.mark.nightly  # the arm is a training job, whose own test of Ctrl-C runs with every change
@pytest.mark.chaos
def test_ctrl_c_ends_the_arm_and_leaves_no_process(tmp_path):
    process = subprocess.Popen(
        command("run.steps=50"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    log = tmp_path / "runs/small/arms/decs-s0/train.log"
    try:
        deadline = time.monotonic() + 400
        while not (log.is_file() and "engines ready" in log.read_text()):
            assert process.poll() is None and time.monotonic() < deadline, "the first arm did not start"
            time.sleep(0.5)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == 130, out
        _, alive = psutil.wait_procs(family, timeout=60)
        assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
        assert not (log.parent / "result.json").exists()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
