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
def test_two_rows_and_one_that_cannot_run_here(tmp_path):
    options = [
        "--rows",
        "B,C,E",
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
    plain, weights, drafted = result["rows"]
    assert code == 0 and (plain["ran"], weights["ran"], drafted["ran"]) == (True, False, True)
    assert "fp8" in weights["why_not"] and "output_tokens_per_s" not in weights
    for row in (plain, drafted):
        assert FIELDS <= set(row) and row["requests_ok"] == 8 and row["answers"] == 4
        assert row["itl_ms"]["p50"] <= row["itl_ms"]["p99"] and row["peak_memory_gb"] > 0.1
        assert all((tmp_path / "table" / file).is_file() for file in row["raw"])
    assert plain["acceptance"] is None and drafted["acceptance"]["draft_tokens"] > 0 and drafted["on_top_of"] == []
    assert drafted["effective"]["speculative_config.num_speculative_tokens"] == 3
    assert [(one["row"], one["over"]) for one in result["ratios"]] == [("E", "B")]
    kept = measure(tmp_path, *options)[1]
    assert kept["rows"] == result["rows"]  # nothing is measured twice


@pytest.mark.slow
@pytest.mark.nightly
def test_the_form_for_ci(tmp_path):
    code, result = measure(tmp_path, "--ci")
    assert code == 0, [row["why_not"] for row in result["rows"]]
    assert [row["row"] for row in result["rows"]] == ["A", "A'", "B", "D", "E", "F"]
    assert sum(result["rows"][-1]["decisions"].values()) > 0
