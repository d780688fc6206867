"""The table of serving levers without an engine: rows, options, the generator's arguments and results, the table."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import _bench_client as bench_client
from jobs import bench_serve
from jobs._bench_answers import Answers, Price, answer_figures, at_once
from jobs._bench_client import LoadClient, Sending, arguments
from jobs._bench_environment import processor
from jobs._bench_measure import Plan, decisions, folder_name, idle_lever, lengths_of, not_run
from jobs._bench_refused import no_cpu_fp8, refused_here
from jobs._bench_requests import plan
from jobs._bench_rows import ROWS, Choices, chosen, extra_body, not_given, plain, row_config, stack_of, waves
from jobs._bench_serve_arguments import above, whole_numbers
from jobs._bench_serve_checks import broken
from jobs._bench_serve_figures import Faulty, Repeat, Slo, acceptance, latency, median_interval, read, row_figures
from jobs._bench_serve_plot import levers_figure
from jobs._bench_served import memory_of, requested_of
from jobs._bench_table import compared, ratios, text
from jobs._services import ServiceError
from pipeline.config import UserError, load_config, schema
from pipeline.engine.options import EngineOptions
from pipeline.evaluation import ScoredTrace
from pipeline.traces import Stop, Trace, VersionSpan
from serve.levers import refusals
from serve.speculation.settings import SCHEDULER

CHOICES = Choices(8, (2, 4))
SENDING = Sending("http://127.0.0.1:1", "policy", "/model", 8, math.inf, 0.0, 7)


def config(*overrides):
    return load_config("infra/presets/tiny.yaml", list(overrides))


def made(name, stack=(), cfg=None, choices=CHOICES, k=4):
    return row_config(ROWS[name], cfg or config(), stack, choices, k, "/log")


def test_rows_are_named_in_any_order_and_measured_in_the_tables():
    assert [row.name for row in chosen("E, A',B")] == ["A'", "B", "E"]
    with pytest.raises(UserError, match="there is no row H"):
        chosen("A,H")
    with pytest.raises(UserError, match="--rows is empty"):
        chosen(" ,")


def test_a_row_stands_on_the_levers_that_ran_before_it():
    assert stack_of(ROWS["B"], {"A", "A'", "B"}) == []
    assert stack_of(ROWS["E"], {"A", "B", "D"}) == ["D"]
    assert stack_of(ROWS["F"], {"B", "D", "E"}) == ["D"]  # the policy takes the place of the fixed length
    assert stack_of(ROWS["G"], {"C", "D", "E", "F"}) == ["C", "D", "F"]
    assert stack_of(ROWS["G"], {"D", "E"}) == ["D", "E"]


def test_each_row_changes_its_own_lever_alone():
    cfg = config("kv.dtype=fp8", "quant.weights=int8_per_channel_weight_only", "serve.replicas=2")
    base = made("B", cfg=cfg)
    assert (base.kv.dtype, base.quant.weights, base.speculation.method) == ("auto", "none", "none")
    assert base.engine.max_num_seqs == 8 and base.serve.replicas == 1 and made("A'") == made("B")
    assert made("A").engine.max_num_seqs == 1
    assert made("C", cfg=cfg).quant.weights == "int8_per_channel_weight_only" and made("C").quant.weights[:3] == "fp8"
    assert made("D").kv.dtype == "fp8" and made("D").quant.weights == "none"
    static, adaptive = made("E", ["D"], k=2), made("F", ["D"])
    assert (static.speculation.method, static.speculation.k_max, static.speculation.policy) == ("ngram", 2, None)
    assert adaptive.speculation.policy == "goodput" and adaptive.speculation.log == "/log"
    assert static.kv.dtype == adaptive.kv.dtype == "fp8"
    assert made("G", ["D", "F"]).speculation == adaptive.speculation


def test_the_configs_own_drafter_and_policy_are_what_the_levers_mean():
    cfg = config("speculation.method=draft_model", "speculation.model=/small", "speculation.k_max=9",
                 "speculation.policy=ucb", "speculation.policy_options.seed=3")  # fmt: skip
    assert made("E", cfg=cfg, k=2).speculation.model == "/small" and made("E", cfg=cfg, k=2).speculation.policy is None
    adaptive = made("F", cfg=cfg).speculation
    assert (adaptive.policy, adaptive.policy_options.seed, adaptive.k_max) == ("ucb", 3, 4)


def test_what_row_g_is_given():
    assert "neither --trained" in not_given(ROWS["G"], CHOICES) and not not_given(ROWS["F"], CHOICES)
    budget = replace(CHOICES, thinking_budget=0)  # a budget of nothing is one
    assert not_given(ROWS["G"], replace(CHOICES, trained="/t")) == not_given(ROWS["G"], budget) == ""
    assert extra_body(ROWS["G"], budget) == {"thinking_token_budget": 0} and extra_body(ROWS["F"], budget) == {}
    assert made("G", choices=replace(CHOICES, trained="/t")).model.path == "/t"


def test_engine_arguments_and_what_this_machine_refuses():
    cfg = made("F", ["D"])
    asked = requested_of(cfg, EngineOptions.from_config(cfg.engine, "cpu"))
    assert asked["kv_cache_dtype"] == "fp8" and asked["scheduler_cls"] == SCHEDULER
    assert asked["disable_log_stats"] is False and asked["max_num_seqs"] == 8
    assert "fp8" in refusals(made("C"), "cpu")[0]
    assert all(refusals(made(name), "cpu") == [] for name in ("A", "A'", "B", "D", "E", "F"))


def test_the_generator_is_told_to_send_as_the_row_does(tmp_path):
    shapes = plan(5, 0, ["1 + 1 = ?"], [8, 24], 1.0)
    assert [len(part) for part in waves(ROWS["A'"], shapes, 2)] == [2, 2, 1]
    assert [len(part) for part in waves(ROWS["B"], shapes, 2)] == [5]
    one = arguments(ROWS["A"], replace(SENDING, rate=3.0), 5, tmp_path / "p.jsonl", tmp_path / "r.json")
    assert one[one.index("--max-concurrency") + 1] == "1" and one[one.index("--request-rate") + 1] == "inf"
    open_ = arguments(ROWS["B"], replace(SENDING, rate=3.0), 5, tmp_path / "p.jsonl", tmp_path / "r.json")
    assert "--max-concurrency" not in open_ and open_[open_.index("--request-rate") + 1] == "3.0"
    assert "--extra-body" not in open_ and {"--ignore-eos", "--disable-shuffle", "--save-detailed"} <= set(open_)
    extra = arguments(
        ROWS["G"], replace(SENDING, extra={"thinking_token_budget": 4}), 5, tmp_path / "p", tmp_path / "r"
    )
    assert json.loads(extra[-1]) == {"thinking_token_budget": 4}


def raw(lens, failed=0, errors=(), seconds=2.0, drafts=None):
    found = {
        "completed": len(lens) - failed, "failed": failed, "duration": seconds, "output_lens": list(lens),
        "errors": list(errors) or [""] * len(lens), "ttfts": [0.1] * len(lens),
        "latencies": [0.1 + 0.01 * n for n in lens], "itls": [[0.01] * (n - 1) for n in lens],
    }  # fmt: skip
    names = ("spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens")
    return found | (dict(zip(names, drafts, strict=True)) if drafts else {})


def test_groups_make_one_repeat_and_their_drafts_add_up():
    repeat = read([raw([3, 5], drafts=(2, 6, 3)), raw([2], seconds=3.0, drafts=(1, 3, 0))], [3, 5, 2])
    assert repeat.tokens_per_s == 10 / 5 and repeat.drafts == (3, 9, 3) and len(repeat.gaps[1]) == 4
    assert acceptance([repeat.drafts, None]) == {
        "rate": 1 / 3, "tokens_per_step": 2.0, "drafts": 3, "draft_tokens": 9, "accepted_tokens": 3,
    }  # fmt: skip
    assert acceptance([None]) is None and acceptance([(0, 0, 0)]) is None


@pytest.mark.parametrize(
    ("part", "asked", "says"),
    [
        (
            raw([3, 0], failed=1, errors=["", "Traceback\nConnectionError: gone"]),
            [3, 3],
            "1 of 2 requests failed.*gone",
        ),
        (raw([3]), [3, 3], "0 of 2 requests failed, 1 came back"),
        (raw([3, 2]), [3, 3], r"1 of 2 replies have another length than asked for, the first \(2, 3\)"),
    ],
)
def test_a_success_that_is_none_is_found_out(part, asked, says):
    with pytest.raises(Faulty, match=says):
        read([part], asked)


def test_figures_by_hand():
    repeats = [read([raw([11, 21], seconds=s)], [11, 21]) for s in (1.0, 2.0, 4.0)]
    found = row_figures(repeats, Slo(ttft=100.1, tpot=11.001))
    assert found["output_tokens_per_s"] == 16.0 and found["output_tokens_per_s_repeats"] == [32.0, 16.0, 8.0]
    assert found["output_tokens_per_s_interval"] == [8.0, 32.0] and found["requests_ok"] == 6
    assert found["ttft_ms"]["p50"] == pytest.approx(100) and found["itl_ms"]["p99"] == pytest.approx(10)
    assert found["e2e_ms"]["p50"] == pytest.approx(260) and found["tpot_ms"]["p95"] == pytest.approx(11, rel=0.01)
    assert found["goodput"]["share"] == 1.0 and found["goodput"]["requests_per_s"] == pytest.approx(6 / 7)
    assert row_figures(repeats, Slo(ttft=99, tpot=50))["goodput"]["share"] == 0.0
    assert median_interval([1.0, 2.0]) is None and latency([[]])["p50"] is None


@given(st.lists(st.lists(st.floats(0.001, 10), min_size=1, max_size=6), min_size=1, max_size=8))
def test_latencies_are_ordered_and_inside_what_was_seen(by_request):
    found, seen = latency(by_request), 1000 * np.concatenate(by_request)
    ends = [seen.min() * (1 - 1e-9), found["p50"], found["p95"], found["p99"], seen.max() * (1 + 1e-9)]
    assert ends == sorted(ends)
    assert all(low <= high for low, high in found["intervals"].values())


def scored(correct, length):
    trace = Trace("p", 0, (), (1,) * length, (0.0,) * length, (VersionSpan(0, 0, length),), Stop.EOS, "")
    return ScoredTrace(trace, (), think_length=length - 1, answer_start=length, ends_seen=1, correct=correct)


def test_wrong_answers_cost_too():
    price = Price(per_hour=2.0, unit="core", units=2)
    found = answer_figures(Answers([scored(True, 10), scored(False, 30)], [], 18.0), price)
    assert found["accuracy"] == 0.5 and found["tokens_per_correct"] == 40 and found["seconds_per_correct"] == 18.0
    assert found["cost_per_correct"] == pytest.approx(0.02) and found["think_tokens_most"] == 29
    none = answer_figures(Answers([scored(False, 10)], [], 1.0), price)
    assert none["tokens_per_correct"] is None and none["cost_per_correct"] is None and none["accuracy"] == 0.0


def test_a_row_sends_all_or_in_groups_with_as_many_at_once():
    assert waves(ROWS["A'"], list(range(5)), 2) == [[0, 1], [2, 3], [4]]
    assert waves(ROWS["B"], list(range(5)), 2) == [[0, 1, 2, 3, 4]] and waves(ROWS["B"], [], 2) == []
    assert [at_once(ROWS[name], 4) for name in ("A", "A'", "B")] == [1, 4, 8]


def test_levers_that_did_nothing(tmp_path):
    assert "nothing was drafted" in idle_lever(ROWS["E"], {"acceptance": None, "think_tokens_most": 1}, CHOICES)
    log = tmp_path / "d.jsonl"
    assert decisions(log) is None
    log.write_text("")
    assert "decided nothing" in idle_lever(ROWS["F"], {"decisions": decisions(log), "think_tokens_most": 1}, CHOICES)
    budget = replace(CHOICES, thinking_budget=9)
    assert not idle_lever(ROWS["G"], {"think_tokens_most": 10}, budget)
    assert "thought for 11 tokens" in idle_lever(ROWS["G"], {"think_tokens_most": 11}, budget)
    assert not idle_lever(ROWS["B"], {"think_tokens_most": 11}, budget)
    assert lengths_of(ROWS["E"], CHOICES) == (2, 4) and lengths_of(ROWS["B"], CHOICES) == [None]


def test_room_and_memory_are_read_not_guessed():
    assert memory_of({"server": {"peak": 3 << 30}}, "cpu")["peak_gb"] == 3.0
    assert memory_of({}, "cpu")["peak_gb"] is None


def entry(name, rates, stack=(), drafts=None, kv=100):
    repeats = [Repeat(1.0, [int(rate)], [0.1], [[0.01]], [0.2], drafts) for rate in rates]
    answers = answer_figures(Answers([scored(True, 10)], [], 1.0), Price(1.0, "core", 2))
    row = {"row": name, "title": ROWS[name].title, "lever": "", "on_top_of": list(stack), "ran": True, "failed": False}
    figures = row_figures(repeats, Slo(1000, 50)) | answers
    return row | figures | {"peak_memory_gb": 1.0, "kv_tokens": kv, "raw": [f"{name}.json"], "why_not": None}


def absent(name, why):
    return {"row": name, "title": ROWS[name].title, "lever": "", "on_top_of": [], **not_run(why)}


def test_a_ratio_needs_the_raw_results_of_both_rows(tmp_path):
    entries = [
        entry("A", [100, 100, 100]),
        entry("B", [200, 300, 400]),
        absent("C", "no AMX\nlast lines"),
        entry("D", [300] * 3),
    ]
    assert compared(entries) == [("B", "A"), ("D", "B")] and ratios(entries, tmp_path) == []
    for name in ("A", "B"):
        (tmp_path / f"{name}.json").write_text("{}")
    found = ratios(entries, tmp_path)
    assert [(one["row"], one["over"]) for one in found] == [("B", "A")]
    assert found[0]["output_tokens_per_s"] == {"ratio": 3.0, "low": 2.0, "high": 4.0, "rounds": 3}
    table = text(entries, found, {"per_hour": 1.0, "unit": "core", "units": 2})
    assert "| B | continuous batching | – | 300 (200 to 400) | 3.00 (2.00 to 4.00) of A |" in table
    assert "| D | FP8 KV cache | – | 300 (300 to 300) | – |" in table
    assert "| C | FP8 weights | no AMX |" in table and "last lines" not in table
    assert len(levers_figure(entries).axes) == 2


def test_comparisons_name_what_a_row_stands_on():
    rows = [
        entry(name, [1], stack) for name, stack in [("A", ""), ("A'", ""), ("B", ""), ("D", ""), ("E", "D"), ("F", "D")]
    ]
    pairs = compared(rows)
    assert pairs == [
        ("A'", "A"),
        ("B", "A'"),
        ("B", "A"),
        ("D", "B"),
        ("E", "D"),
        ("E", "B"),
        ("F", "D"),
        ("F", "E"),
        ("F", "B"),
    ]


def test_what_must_hold_between_rows():
    good = [
        entry("A", [1]),
        entry("A'", [2]),
        entry("B", [3]),
        entry("D", [3], kv=190),
        entry("E", [3], drafts=(1, 2, 1)),
    ]
    assert broken(good) == []
    slow = broken([entry("A'", [5]), entry("B", [4])])
    assert slow == ["row B (4 tokens/s) is not faster than row A' (5)"]
    assert (
        "drafted nothing" in broken([entry("E", [1])])[0]
        and "row B drafted" in broken([entry("B", [1], drafts=(1, 1, 1))])[0]
    )
    assert "more tokens than were drafted" in broken([entry("E", [1], drafts=(1, 1, 2))])[0]
    assert "holds 150 tokens" in broken([entry("B", [1]), entry("D", [1], kv=150)])[0]
    assert broken([absent("C", "no AMX")]) == ["row C did not run: no AMX"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rows", "A,Z"], "there is no row Z"),
        (["--tokens", "300"], "at most 256 fit"),
        (["--tokens", "8,x"], "--tokens takes a whole number"),
        (["--request-rate", "nan"], "--request-rate takes a number above 0"),
        *(
            ([option, value], f"{option} takes a number")
            for value in ("inf", "nan")
            for option in ("--request-rate", "--temperature", "--price-per-hour")
        ),
        (["--suite", "nope"], "nope"),
        (["--trained", "/nope"], "--trained /nope: no model folder"),
        (["--temperature", "-1"], "--temperature takes a number from 0"),
        (["--rows", "A", "--trained", "x"], "--trained is for row G"),
        (["--clients", "1"], "--clients takes a whole number from 2"),
        (["--thinking-budget", "8", "reasoning.parser=null"], "--thinking-budget needs reasoning.parser"),
    ],
)
def test_mistakes_are_told_before_anything_starts(capsys, arguments, says):
    assert bench_serve.command(["--config", "infra/presets/tiny.yaml", "--dry-run", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_suffix_decoding_has_no_policy_to_measure(capsys):
    argv = ["--config", "infra/presets/tiny.yaml", "--dry-run", "--rows", "E,F", "speculation.method=suffix"]
    assert bench_serve.command(argv) == 0
    assert "F  " in (told := capsys.readouterr().out) and "not measured: suffix decoding sets its own length" in told


def test_a_dry_run_says_what_will_not_be_measured(capsys):
    assert bench_serve.command(["--config", "infra/presets/tiny.yaml", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "FP8 weights: not measured: quant.weights=fp8_per_block" in told and "neither --trained" in told


@pytest.mark.parametrize("amx", [True, False])
def test_fp8_weights_on_a_cpu_need_amx_and_bfloat16(monkeypatch, amx):
    assert "needs a processor with AMX" in no_cpu_fp8("bfloat16", amx=False)
    assert "engine.dtype is float32" in no_cpu_fp8("float32", amx=True) and no_cpu_fp8("bfloat16", amx=True) == ""
    monkeypatch.setattr("jobs._bench_refused.cpu_has_amx", lambda: amx)
    assert "fp8_per_tensor" in refused_here(made("C")) and refused_here(made("B")) == ""
    block = made("C", cfg=config("quant.weights=fp8_per_block", "engine.dtype=bfloat16"))
    assert (refused_here(block) == "") == amx


def test_numbers_of_the_command_line():
    assert whole_numbers("--drafts")("4,2,4") == (2, 4) and above("--x")("0.5") == 0.5
    assert folder_name(ROWS["A'"]) == "A-groups"


def test_the_processor_is_told_by_what_kernels_are_chosen_by():
    told = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu amx_tile avx512f fma\n\nmodel name\t: other\n"
    assert processor(told) == {"model": "Some CPU", "flags": ["amx_tile", "avx512f"]} and processor("") == {}


def test_a_kept_row_is_known_by_how_it_was_measured():
    some = Plan(4, 1, (8,), math.inf, 0.0, Slo(1, 1), Price(1.0, "core", 2), CHOICES, ["a"])
    assert json.loads(json.dumps(some.identity())) == some.identity()
    assert some.identity() != replace(some, requests=5).identity()
    assert [shape.prompt for shape in some.shapes(0)] == ["a"] * 4 and len(some.shapes(0, 2)) == 2


def test_the_plain_row_keeps_the_rest_of_the_config():
    cfg = config("batching.max_num_batched_tokens=1024", "kv.prefix_cache=false")
    assert plain(cfg, 4).batching == cfg.batching and plain(cfg, 4).kv.prefix_cache is False


def test_a_generator_that_ends_is_told_with_its_last_words(tmp_path, monkeypatch):
    client = LoadClient(tmp_path, EngineOptions.from_config(schema.Engine(), "cpu"))
    monkeypatch.setattr(bench_client.sys, "executable", "/bin/false")
    for _ in range(2):  # and it is started anew
        with pytest.raises(ServiceError, match="load generator ended"):
            client.repeat(ROWS["A"], SENDING, plan(1, 0, ["a"], [8], 1.0), tmp_path / "x", 5.0)
        assert client.process is None
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho ready\nexec sleep 60\n")
    silent.chmod(0o700)
    monkeypatch.setattr(bench_client.sys, "executable", str(silent))
    monkeypatch.setattr(bench_client, "END_S", 0.1)
    with pytest.raises(ServiceError, match="was not done in time"):
        client.repeat(ROWS["A"], SENDING, plan(1, 0, ["a"], [8], 1.0), tmp_path / "x", 0.2)
    client.close()
