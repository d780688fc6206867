"""The table of serving levers with real servers on the tiny model: counts and orders, no absolute figures."""

import json

import pytest

from jobs import bench_serve

FIELDS = {
    "ran", "why_not", "requests_ok", "output_tokens_per_s", "ttft_ms", "itl_ms", "e2e_ms", "peak_memory_gb",
    "kv_tokens", "acceptance", "accuracy", "tokens_per_correct", "cost_per_correct", "goodput", "requested",
    "effective",
}  # fmt: skip


def measure(folder, *options):
    """The exit code and what was written."""
    argv = ["--config", "infra/presets/tiny.yaml", "--services", str(folder / "none"), "--clients", "8", *options]
    code = bench_serve.command([*argv, "run.name=table", f"storage.uri={folder}"])
    return code, json.loads((folder / "table/bench_serve.json").read_text())


@pytest.mark.slow
def test_a_row_and_one_that_cannot_run_here(tmp_path):
    options = [
        "--rows",
        "C,E",
        "--requests",
        "8",
        "--repeats",
        "1",
        "--limit",
        "4",
        "--drafts",
        "3",
        "--tokens",
        "8,32",
    ]
    code, result = measure(tmp_path, *options)
    weights, drafted = result["rows"]
    assert code == 0 and (weights["ran"], drafted["ran"]) == (False, True)
    assert "fp8" in weights["why_not"] and "output_tokens_per_s" not in weights
    assert FIELDS <= set(drafted) and drafted["requests_ok"] == 8 and drafted["answers"] == 4
    assert drafted["itl_ms"]["p50"] <= drafted["itl_ms"]["p99"] and drafted["peak_memory_gb"] > 0.1
    assert all((tmp_path / "table" / file).is_file() for file in drafted["raw"])
    assert drafted["acceptance"]["draft_tokens"] > 0 and drafted["on_top_of"] == []
    assert drafted["effective"]["speculative_config.num_speculative_tokens"] == 3 and result["ratios"] == []
    assert measure(tmp_path, *options)[1]["rows"] == result["rows"]  # nothing is measured twice


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)  # six servers
def test_the_form_for_ci(tmp_path):
    code, result = measure(tmp_path, "--ci")
    assert code == 0, [row["why_not"] for row in result["rows"]]
    assert [row["row"] for row in result["rows"]] == ["A", "A'", "B", "D", "E", "F"]
    assert sum(result["rows"][-1]["decisions"].values()) > 0
    assert result["rows"][2]["acceptance"] is None
    pairs = {(one["row"], one["over"]) for one in result["ratios"]}
    assert {("A'", "A"), ("B", "A'"), ("D", "B"), ("E", "D"), ("F", "E")} <= pairs
