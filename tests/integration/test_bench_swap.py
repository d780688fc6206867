"""The endpoint's measurements with small numbers, on a Ray head of their own: swaps under load, a killed replica, and
vLLM's own server beside it."""

import json

import pytest

import jobs.serve
from jobs import bench_overhead, bench_swap, services

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    folder = tmp_path_factory.mktemp("services")
    try:
        services.up(folder, only=("ray",))
        yield folder
    finally:
        services.down(folder)


@pytest.fixture(scope="module")
def arguments(head, tmp_path_factory):
    home = tmp_path_factory.mktemp("results")
    options = {
        "storage.uri": home / "runs",
        "tracking.uri": f"sqlite:///{home}/mlflow.db",
        "engine.max_num_seqs": 32,
        "engine.kv_cache_bytes": 64 << 20,
        "serve.start_deadline_s": 400,
    }
    pairs = [f"{key}={value}" for key, value in options.items()]
    return ["--config", "infra/presets/tiny.yaml", "--services", str(head), *pairs], home / "runs"


def measured(command, arguments, name, *more):
    code = command(["--requests", "40", "--clients", "4", *more, *arguments[0], f"run.name={name}"])
    return code, json.loads((arguments[1] / name / "swap.json").read_text())


def test_swaps_and_refusals_break_no_promise(arguments):
    code, result = measured(
        bench_swap.command, arguments, "swaps", "--swaps", "4", "--bad-snapshots", "serve.replicas=2"
    )
    assert result["broken_promises"] == [] and code == 0
    assert result["deployed_here"] and result["replicas"] == 2 and result["requests"] >= 50
    assert result["swaps"] == 4 and len(result["refused"]) == 6
    assert result["pause_ms"]["p99"] > 0 and result["latency_ratio"] > 0 and result["mlflow_run_id"]
    print(json.dumps({name: result[name] for name in ("pause_ms", "publish_to_confirm_s", "latency_ratio")}))


@pytest.mark.chaos
@pytest.mark.nightly
def test_a_killed_replica_fails_no_whole_reply(arguments):
    code, result = measured(bench_swap.command, arguments, "kill", "--swaps", "2", "--kill-replica")
    assert result["kill"]["recovered_s"] > 0 and not result["deployed_here"]
    assert result["broken_promises"] == [] and code == 0
    print(json.dumps({name: result[name] for name in ("kill", "broken_streams", "failures")}))


@pytest.mark.nightly
def test_beside_vllms_own_server(arguments):
    assert jobs.serve.command([*arguments[0], "serve.replicas=1"]) == 0
    more = ["--rounds", "3", "--clients", "1,4", "--tokens", "8,32"]
    assert bench_overhead.command([*more, *arguments[0], "run.name=overhead"]) == 0
    result = json.loads((arguments[1] / "overhead" / "overhead.json").read_text())
    assert result["failed"] == 0 and len(result["cases"]) == 6
    assert all(case["ratios"]["requests_per_s"]["low"] > 0 for case in result["cases"])
    assert result["conditions"]["endpoint"]["nice"] == result["conditions"]["vllm"]["nice"]
    print((arguments[1] / "overhead" / "overhead.md").read_text())
