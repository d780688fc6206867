"""Flags, cases, figures and table of the comparison with vLLM's own server; no Ray, no engine."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter

import httpx
import pytest

from jobs import bench_overhead
from jobs._bench_bare import MemoryWatch, bare_launch, check_alike, conditions, flags
from jobs._bench_cases import OURS, THEIRS, Case, Outcome, cases, figures, order, table
from jobs._bench_replies import Reply
from jobs._bench_requests import Shape
from pipeline.config import UserError, load_config, schema
from pipeline.engine.options import EngineOptions


def test_flags_as_the_command_line_takes_them():
    kwargs = {
        "max_model_len": 512,
        "enforce_eager": True,
        "async_scheduling": False,
        "disable_log_stats": False,
        "weight_transfer_config": {"backend": "folder"},
        "block_size": None,
    }
    found = flags(kwargs)
    assert found == [
        "--no-async-scheduling", "--enforce-eager", "--max-model-len", "512",
        "--weight-transfer-config", '{"backend": "folder"}',
    ]  # fmt: skip


def test_the_server_runs_as_a_replica_does():
    options = EngineOptions.from_config(schema.Engine(), "cpu")
    launch = bare_launch("/models/a", "policy", {"dtype": "float32"}, options)
    text = " ".join(launch.command)
    assert "-m vllm.entrypoints.openai.api_server --host 127.0.0.1" in text
    assert "--model /models/a --served-model-name policy" in text and text.endswith(
        "--distributed-executor-backend uni"
    )
    assert launch.env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0" and launch.env["OMP_NUM_THREADS"] == "1"


def test_unlike_conditions_are_refused():
    mine = conditions(os.getpid())
    assert mine["nice"] == [os.nice(0)] and mine["processes"] >= 1
    check_alike(mine, mine)
    for name in ("nice", "cores"):
        with pytest.raises(UserError, match=f"{name} is"):
            check_alike(mine, mine | {name: [99]})
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        watch = MemoryWatch({"here": os.getpid(), "other": other.pid})
        watch.start()
        seen = watch.stop()
    finally:
        other.kill()
        other.wait()
    assert seen["here"]["peak"] >= seen["here"]["first"] > 1 << 20 and seen["samples"] >= 1 and seen["lost"] == 0
    watch.sample()
    assert watch.lost == 1  # a process that is gone is counted, not taken for zero bytes


def test_cases_and_turns():
    found = cases([1, 8, 32], [16, 128])
    assert len(found) == 9 and [case.requests for case in found[:6]] == [64, 16, 240, 40, 960, 128]
    assert [(case.clients, case.tokens) for case in found if case.stream] == [(1, 128), (8, 128), (32, 128)]
    assert cases([1], [4])[-1] == Case(1, 4, True)
    assert order(0) == (THEIRS, OURS) and order(1) == (OURS, THEIRS)


def reply(began, ended, arrivals=()):
    shape = Shape(0, "a", 4, bool(arrivals), 0)
    return Reply(shape, "measured", began, ended, arrivals=list(arrivals), tokens=4)


def test_figures_by_hand():
    whole = figures([reply(0, 1), reply(0, 3)], 4.0)
    assert whole == {"requests_per_s": 0.5, "seconds_p50": 2.0, "seconds_p99": 2.98}
    streamed = figures([reply(1, 3, [1.5, 2.5, 3.0])], 2.0)  # four tokens in three chunks: one came with two
    assert streamed["first_token_p50"] == 0.5 and streamed["between_tokens_p50"] == 0.5
    assert streamed["gap_p99"] == pytest.approx(0.995)


def outcome(case, ours, theirs):
    found = Outcome(case)
    for side, values in ((OURS, ours), (THEIRS, theirs)):
        found.rounds[side] = [{"requests_per_s": v, "seconds_p50": 1 / v, "seconds_p99": 2 / v} for v in values]
    return found


def test_ratios_are_of_the_same_round_and_the_table_shows_them():
    found = outcome(Case(8, 16), [9.0, 18.0, 27.0], [10.0, 20.0, 30.0])  # the machine gets faster for both
    assert found.ratios()["requests_per_s"] == {"ratio": 0.9, "low": 0.9, "high": 0.9, "rounds": 3}
    assert found.ratios()["seconds_p50"]["ratio"] == 1.111
    text = table([found, outcome(Case(1, 16), [2.0], [1.0])])
    assert "| 8 clients, 16 tokens | requests/s | 20.0 | 18.0 | 0.90 (0.90 to 0.90) |" in text
    assert "| 1 clients, 16 tokens | latency p50, ms | 1000.0 | 500.0 | 0.50 |" in text
    assert Outcome(Case(1, 16)).ratios() == {}


def test_rounds_and_the_greedy_check(monkeypatch):
    """Both servers up, one of which answers other tokens."""

    seen = Counter()

    def server(request):
        asked = json.loads(request.content)
        seen[request.url.host] += asked["max_tokens"]
        token = 6 if request.url.host == "b" and asked["temperature"] == 0 else 5
        if asked.get("stream"):
            event = (
                '{"id":"c","choices":[{"token_ids":[5,5],"finish_reason":"length"}],"usage":{"completion_tokens":2}}'
            )
            return httpx.Response(200, text=f"data: {event}\n\ndata: [DONE]\n\n")
        choice = {"finish_reason": "length", "token_ids": [token] * asked["max_tokens"]}
        usage = {"completion_tokens": asked["max_tokens"]}
        return httpx.Response(200, json={"id": "c", "choices": [choice], "usage": usage})

    def client(clients, timeout_s):
        return httpx.AsyncClient(transport=httpx.MockTransport(server))

    monkeypatch.setattr(bench_overhead, "http_client", client)
    cfg, args = load_config(None, []), type("Args", (), {"rounds": 2})
    urls = {OURS: "http://a", THEIRS: "http://b"}
    outcomes, failures = asyncio.run(bench_overhead._rounds(cfg, args, urls, "m", cases([2], [2]), ["1 + 1"], 20))
    assert [len(one.rounds[side]) for one in outcomes for side in (OURS, THEIRS)] == [2, 2, 2, 2]
    assert len(failures) == 1 and failures[0].startswith("the greedy replies differ: [5, 5")
    # 2 cases, 2 rounds, 2 clients, 2 tokens
    warm, filling, measured = (2 + 2 * 2) * 2 * 2, 20, 2 * 2 * 2 * cases([2], [2])[0].requests
    assert seen["a"] == seen["b"] == 32 + warm + filling + measured
    urls = dict.fromkeys(urls, "http://a")
    assert asyncio.run(bench_overhead._rounds(cfg, args, urls, "m", cases([2], [2]), ["1 + 1"], 20))[1] == []


@pytest.mark.parametrize("arguments", [["--clients", "1,x"], ["--tokens", "0"], ["--rounds", "0"]])
def test_mistakes_are_told_before_anything_starts(capsys, arguments):
    assert bench_overhead.command(arguments) == 2
    assert arguments[0] in capsys.readouterr().err
