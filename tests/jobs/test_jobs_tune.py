"""`jobs.tune`: what it refuses before anything is imported, and one whole run."""

import json

import pytest

import jobs.tune
from jobs import _tune_blocks
from pipeline.config import load_config
from pipeline.evaluation.samples import SampleLedger
from pipeline.evaluation.scoring import ScoredTrace
from pipeline.traces import Stop, Trace, VersionSpan

LINES = [{"prompt_tokens": 200 + i, "output_tokens": 60, "shared": [["system", 130]]} for i in range(8)]


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return file


def tune(*argv):
    return jobs.tune.command(["block-size", *map(str, argv), "--config", "infra/presets/tiny.yaml"])


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "give either --trace FILE or --samples FILE"),
        (["--trace", "a", "--samples", "b"], "give either --trace FILE or --samples FILE"),
        (["--trace", "none.jsonl"], "cannot be read"),
        (["--samples", "none.jsonl"], "is not there"),
        (
            ["--trace", "TRACE", "--sizes", "8,32"],
            "a block of 8 tokens is refused: vLLM's CPU attention takes multiples",
        ),
        (["--trace", "TRACE", "--sizes", "48"], "a block of 48 tokens is refused"),
        (["--trace", "TRACE", "--backend", "flash_attn", "--sizes", "8"], "FlashAttention takes multiples of 16"),
        (["--trace", "TRACE", "--backend", "flashinfer", "--sizes", "24"], "FlashInfer takes multiples of 16"),
        (["--trace", "TRACE", "--sizes", "x"], "--sizes takes a whole number"),
        (["--trace", "TRACE", "--capacity-tokens", "0"], "--capacity-tokens takes a whole number"),
        (["--trace", "TRACE", "--tolerance", "2"], "--tolerance is 2"),
        (["--trace", "TRACE", "--write-trace", "x"], "--write-trace keeps what --samples holds"),
        (
            ["--trace", "TRACE", "engine.max_model_len=260", "rollout.max_new_tokens=100"],
            "request 2 of the trace has 261",
        ),
        (["--trace", "TRACE", "engine.kv_cache_bytes=null"], "give --capacity-tokens"),
    ],
)
def test_mistakes(argv, text, trace, capsys):
    assert tune(*(trace if part == "TRACE" else part for part in argv)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and text in error and error.count("\n") == 1


def test_a_dry_run_says_what_would_be_compared(trace, capsys):
    assert tune("--trace", trace, "--dry-run") == 0
    # 4 layers' pages: the tiny model's bytes a token times the block; the same bytes for each size.
    out = capsys.readouterr().out
    blocks = dict(reversed(part.split(" of ")) for part in out.split("blocks: ")[1].strip().split(", "))
    assert list(blocks) == ["32", "64", "128", "256"] and "8 requests" in out
    assert len({int(size) * int(count) for size, count in blocks.items()}) == 1


def test_an_option_of_another_kind_does_nothing_and_is_refused(trace, monkeypatch, capsys):
    class Other:
        SUMMARY = "another"
        main = plan = staticmethod(lambda cfg, args: 0)

        @staticmethod
        def arguments(parser):
            parser.add_argument("--speed", type=int, default=3)

    monkeypatch.setitem(jobs.tune.KINDS, "other", Other)
    assert tune("--trace", trace, "--speed", "4") == 2
    assert "--speed belongs to `other` and does nothing for `block-size`" in capsys.readouterr().err


def test_a_capacity_in_tokens_needs_no_bytes(trace):
    cfg = load_config("infra/presets/tiny.yaml", ["engine.kv_cache_bytes=null"])
    args = type("Args", (), {"capacity_tokens": 1000})
    assert _tune_blocks._blocks(cfg, args, (32, 64)) == {32: 32, 64: 16}


@pytest.mark.slow
def test_a_run_from_samples(tmp_path, capsys):
    ledger = SampleLedger(tmp_path / "samples.jsonl")
    ledger.begin({"model": "m"})
    ledger.add([scored(f"p{i // 4}", i % 4, tuple(range(i // 4, i // 4 + 100)), 40) for i in range(16)])
    argv = ["--samples", ledger.path, "--write-trace", tmp_path / "trace.jsonl", "--capacity-tokens", "2000"]
    assert tune(*argv, f"storage.uri={tmp_path}/runs", "run.name=tuned") == 0
    out = capsys.readouterr().out
    report = json.loads((tmp_path / "runs/tuned/block_size.json").read_text())
    assert report["requests"] == 16 and [row["block_size"] for row in report["sizes"]] == [32, 64, 128, 256]
    # Each problem's first sample computes the prompt, the other three find its whole blocks.
    assert [row["hit_tokens"] for row in report["sizes"]] == [4 * 3 * 96, 4 * 3 * 64, 0, 0]
    assert report["patch"] == [f"engine.block_size={report['size']}"] == ["engine.block_size=32"]
    assert f"take    32: {report['why']}" in out and "what null means here" in out
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 16
    load_config("infra/presets/tiny.yaml", report["patch"])


def scored(problem, sample, prompt, length):
    ids = tuple(range(1000 + sample, 1000 + sample + length))
    trace = Trace(
        problem, sample, prompt, ids, (0.0,) * length, (VersionSpan(1, 0, length),), Stop.LENGTH, "x" * length
    )
    return ScoredTrace(trace, (), 0, None, 0, False, None)
