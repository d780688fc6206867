"""Measurements side by side, and the demo's report, by hand."""

import json
import shlex
from pathlib import Path

import pytest

from jobs._demo_report import build, complaints, curl, example_pairs, figures, text, write
from jobs._measure import Measured, table
from jobs._traffic import Trickle
from pipeline.config import load_config
from pipeline.evaluation import summarise
from pipeline.problems import Problem
from tests.loop.builders import TOKENIZER, scored

PROBLEMS = {
    "c1": Problem("c1", "What is 1 + 1?", "2", "tiny/chain_sum"),
    "c2": Problem("c2", "What is 2 + 2?", "4", "tiny/chain_sum"),
    "s1": Problem("s1", "a = 1, b = 2. Which two add up to 3?", "a, b", "tiny/search"),
}
BEFORE = Measured(
    PROBLEMS,
    [
        scored(True, 20, think=18, prefix=6, problem="c1", segments=((0, 6), (6, 18))),
        scored(True, 30, think=28, prefix=7, problem="c2", segments=((0, 7), (7, 28))),
        scored(True, 20, think=18, prefix=16, problem="s1"),
    ],
    requests=4,
    failures=["InternalServerError: busy"],
)
AFTER = Measured(
    PROBLEMS,
    [
        scored(True, 10, think=8, prefix=6, problem="c1", version=3, segments=((0, 6), (6, 8))),
        scored(True, 12, think=10, prefix=8, problem="c2", version=3),
        scored(False, 20, think=18, problem="s1", version=3),
    ],
    requests=3,
    failures=[],
)
RESULT = {
    "publications": [
        {"swapped": True, "seconds": 1.234},
        {"swapped": False, "seconds": 0.1},
        {"swapped": True, "seconds": 2.0},
    ],
    "steps": 40,
    "version": 40,
    "ledger": {"trained": 960},
    "mlflow_run_id": "abc",
    "report": "runs/demo-1/report.html",
}


@pytest.fixture
def cfg():
    return load_config(None, ["run.seed=5"])


@pytest.fixture
def report(cfg):
    trickle = Trickle(cfg, "http://127.0.0.1:9", "policy", list(PROBLEMS.values()))
    trickle.sent, trickle.failures = 7, ["12:00:00 APITimeoutError: slow"]
    trickle.versions.update({20: 2, 10: 4})
    urls = {"mlflow": "http://127.0.0.1:5000"}
    return build(cfg, BEFORE, AFTER, trickle, RESULT, {"training": 60.0}, urls, TOKENIZER)


def test_versions_and_sources_of_a_measurement():
    assert (BEFORE.versions, AFTER.versions, Measured({}, [], 0, []).versions) == ([0], [3], [])
    by_source = AFTER.by_source()
    assert list(by_source) == ["tiny/chain_sum", "tiny/search"]
    assert (by_source["tiny/chain_sum"].n, by_source["tiny/chain_sum"].accuracy) == (2, 1.0)
    assert (by_source["tiny/search"].n, by_source["tiny/search"].accuracy) == (1, 0.0)
    assert AFTER.summary == summarise(AFTER.scored)


def test_table():
    lines = table({"before": BEFORE.summary, "after": AFTER.summary, "a longer name than most": summarise([])}).split(
        "\n"
    )
    assert lines[0].split() == ["before", "after", "a", "longer", "name", "than", "most"]
    rows = {line[:28].strip(): line[28:].split() for line in lines[1:]}
    assert rows["replies"] == ["3", "3", "0"]
    assert rows["accuracy"] == ["1.000", "0.667", "-"]
    assert rows["tokens a reply"] == ["23.3", "14.0", "-"]
    assert rows["NRP share of thinking"] == [f"{29 / 64:.3f}", f"{14 / 18:.3f}", "-"]
    assert rows["tokens per correct answer"] == ["23.3", "21.0", "-"]
    assert rows["truncated"] == rows["unknown verdicts"] == ["0.000", "0.000", "-"]
    assert len({len(line) for line in lines}) == 1


def test_report_counts_every_request_and_swap(report):
    assert (report["requests"], report["requests_during_training"], report["failed_requests"]) == (4 + 3 + 7, 7, 2)
    assert report["failures"] == ["InternalServerError: busy", "12:00:00 APITimeoutError: slow"]
    assert (report["swaps"], len(report["not_served"]), report["swap_seconds"]) == (2, 1, [1.23, 2.0])
    assert report["versions"] == {"before": [0], "during": {10: 4, 20: 2}, "after": [3], "trained": 40}
    assert list(report["versions"]["during"]) == [10, 20]
    assert (report["steps"], report["seed"], report["mlflow_run_id"]) == (40, 5, "abc")
    assert json.loads(json.dumps(report))["ledger"] == {"trained": 960}


def test_figures():
    found = figures(AFTER)
    assert found["tokens_mean"] == 14 and found["nrp_share"] == 14 / 18
    chain = {"accuracy": 1.0, "tokens_mean": 11.0, "nrp_share": 14 / 18, "tokens_per_correct": 11.0, "n": 2}
    assert found["by_source"]["tiny/chain_sum"] == chain
    assert found["by_source"]["tiny/search"]["nrp_share"] is None


def test_examples_are_right_both_times_and_most_redundant_before():
    ((one, two),) = example_pairs(BEFORE, AFTER, TOKENIZER)
    assert one.problem == two.problem == "What is 2 + 2?"
    assert (len(one.tokens), len(two.tokens)) == (30, 12)
    assert example_pairs(BEFORE, Measured(PROBLEMS, [], 0, []), TOKENIZER) == []


def test_text_of_the_report(report):
    shown = text(report, BEFORE, AFTER, TOKENIZER, [Path("runs/demo/before_after_0.html")])
    assert "tokens a reply: 40% fewer" in shown
    assert "requests: 14 sent (7 while training), 2 failed, over 2 hot swaps" in shown
    assert "replies while training: 4 from version 10, 2 from version 20" in shown
    for part in ("tiny/chain_sum", "tiny/search", "What is 2 + 2?", "http://127.0.0.1:5000"):
        assert part in shown
    assert "runs/demo-1/report.html" in shown and "runs/demo/before_after_0.html" in shown


def test_text_when_nothing_answered(cfg):
    dead = Measured(PROBLEMS, [], 3, ["APIConnectionError: refused"] * 3)
    trickle = Trickle(cfg, "http://127.0.0.1:9", "policy", [])
    report = build(cfg, dead, dead, trickle, RESULT | {"publications": []}, {}, {}, TOKENIZER)
    assert "tokens a reply: not measured" in text(report, dead, dead, TOKENIZER, [])
    assert report["failed_requests"] == report["requests"] == 6


def test_report_is_written_and_kept_in_mlflow(report, cfg, tmp_path, monkeypatch, capsys):
    kept = []

    class Kept:
        def __init__(self, *arguments):
            kept.append(arguments)

        def attach(self, run_id):
            kept.append(run_id)

        def history(self):
            return {}

        def log_text(self, text, name):
            kept.append(name)
            return True

        def log_folder(self, folder, name):
            kept.append(name)
            return False

    monkeypatch.setattr("jobs._demo_report.Tracker", Kept)
    report["page"] = str(tmp_path / "report.html")
    pages = write(report, BEFORE, AFTER, TOKENIZER, tmp_path / "demo", "sqlite:///x", "abc", cfg)
    assert pages == [tmp_path / "demo" / "before_after_0.html"]
    assert json.loads((tmp_path / "demo" / "report.json").read_text())["requests"] == 14
    page = (tmp_path / "demo" / "before_after_0.html").read_text(encoding="utf-8")
    assert "<html" in page and "What is 2 + 2?" in page
    assert kept == [("sqlite:///x", "decs", "policy"), "abc", "report.html", "demo"]
    whole = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "a reply went from 23.3 to 14.0 tokens, accuracy from 100.0" in whole
    assert "Measured through the endpoint" in whole and whole.count("tokens</p>") == 3  # two kept, one lost
    assert "could not be kept in MLflow" in capsys.readouterr().err


def test_a_demo_complains_of_what_it_did_not_keep():
    kept = {
        "failed_requests": 0,
        "requests": 9,
        "failures": [],
        "not_served": [],
        "versions": {"after": [3], "trained": 3},
    }
    assert complaints(kept) == []
    broken = kept | {
        "failed_requests": 1,
        "failures": ["12:00:00 APIError: gone"],
        "not_served": [{"version": 2, "reason": "digest"}],
        "versions": {"after": [0], "trained": 3},
    }
    assert [text.split()[0] for text in complaints(broken)] == ["1", "version", "the"]


def test_the_command_to_ask_the_endpoint_is_one_that_a_shell_takes():
    question = "What is 2 + 2?\nAnd Ann's 3?"
    words = shlex.split(curl("http://127.0.0.1:8000/v1", "policy", question))
    assert words[2] == "http://127.0.0.1:8000/v1/chat/completions"
    assert json.loads(words[-1])["messages"] == [{"role": "user", "content": question}]
