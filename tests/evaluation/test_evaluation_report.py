"""The report: figures side by side, AES against a base, and what makes two reports comparable."""

import json

import pytest

from pipeline.config import UserError
from pipeline.evaluation import aes, summarise
from pipeline.evaluation.report import build_report, check_base, report_text
from pipeline.problems import Problem
from tests.loop.builders import scored

IDENTITY = {
    "model": {"digest": "abc"},
    "suite": {"name": "tiny", "problems": 3, "digest": "d"},
    "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40, "seed": 0},
    "scoring": {"kind": "math"},
}
PROBLEMS = [
    Problem("a", "?", "1", "tiny/chain_sum", {"family": "chain_sum", "terms": 2}),
    Problem("b", "?", "1", "tiny/chain_sum", {"family": "chain_sum", "terms": 4}),
    Problem("c", "?", "1", "file.jsonl"),
]
SCORED = [
    scored(True, 10, think=8, prefix=4, problem="a", version=2),
    scored(False, 20, think=18, problem="a", version=2),
    scored(True, 30, think=28, prefix=28, problem="b", version=2),
    scored(None, 40, think=38, problem="b", version=3),
    scored(False, 40, think=38, problem="c", version=2),
]


def report(base=None, scored=SCORED):
    return build_report(IDENTITY, PROBLEMS, 2, scored, [10, 40], base)


def test_figures_of_all_by_source_and_by_stated_difficulty():
    found = json.loads(json.dumps(report()))
    assert found["all"]["accuracy"] == (1 / 2 + 1 + 0) / 3 == found["all"]["pass_at_k"]["1"]["value"]
    assert found["all"]["tokens_mean"] == (15 + 35 + 40) / 3 and found["all"]["n"] == 5
    assert list(found["by_source"]) == ["file.jsonl", "tiny/chain_sum"]
    assert list(found["by_difficulty"]) == ["chain_sum, 2 terms", "chain_sum, 4 terms"]  # none for problem c
    assert found["by_difficulty"]["chain_sum, 4 terms"]["accuracy"] == 1
    assert list(found["all"]["budgets"]) == ["10", "40"]
    assert (found["missing"], found["versions"], found["samples_a_problem"]) == (1, [2, 3], 2)
    assert found["identity"] == IDENTITY and found["all"]["aes"] is None


def test_keys_that_earlier_reports_have():
    assert {"accuracy", "tokens_mean", "nrp_share", "tokens_per_correct", "n"} <= set(report()["all"])
    assert {"accuracy", "tokens_mean", "nrp_share", "tokens_per_correct", "n"} <= set(summarise(SCORED).to_dict())


def test_aes_against_a_base():
    base = report()
    assert report(base)["all"]["aes"] == 0
    shorter = [scored(True, 10, problem="a"), scored(True, 10, problem="b"), scored(True, 10, problem="c")]
    assert report(base, shorter)["all"]["aes"] == pytest.approx(aes(1, 10, 0.5, 30)) == pytest.approx(2 / 3 + 3)


def test_no_aes_against_a_base_that_solves_nothing():
    base = report(scored=[scored(False, problem="a")])
    assert base["all"]["accuracy"] == 0 and report(base)["all"]["aes"] is None
    assert report(report(), [scored(None, problem="a")])["all"]["aes"] is None


def test_bases_that_can_be_compared():
    base = report()
    check_base(base, IDENTITY, "base.json")
    other_seed = {**IDENTITY, "sampling": {**IDENTITY["sampling"], "seed": 7}, "model": {"digest": "other"}}
    check_base(base, other_seed, "base.json")


@pytest.mark.parametrize(
    "part,change,named",
    [
        ("suite", {"digest": "e"}, "suite.digest is d, here it is e"),
        ("sampling", {"temperature": 0.6}, "sampling.temperature is 1.0, here it is 0.6"),
        ("sampling", {"max_new_tokens": 80}, "sampling.max_new_tokens"),
        ("scoring", {"judge": "model"}, "scoring.judge is None, here it is model"),
    ],
)
def test_bases_that_cannot(part, change, named):
    with pytest.raises(UserError, match=f"--base b.json is not comparable: its {named}"):
        check_base(report(), {**IDENTITY, part: {**IDENTITY[part], **change}}, "b.json")


@pytest.mark.parametrize("base", [{}, {"identity": {}}, {"all": {"accuracy": 1}}, {"before": {"accuracy": 0.7}}])
def test_a_base_that_is_no_report(base):
    with pytest.raises(UserError, match="--base b.json is no report"):
        check_base(base, IDENTITY, "b.json")


def test_a_base_without_any_verdict_is_none():
    with pytest.raises(UserError, match="no report of jobs.evaluate with figures"):
        check_base(report(scored=[]), IDENTITY, "b.json")


def test_text_shows_unknown_beside_accuracy_and_every_figure():
    text = report_text(report(report()))
    for part in (
        "accuracy (pass@1) 0.500 [",
        "unknown verdicts (20.0% of replies)",
        "a point of accuracy 0.60",
        "pass@k: 1: 0.500",
        "accuracy cut after tokens: 10: ",
        "AES against the base: 0.000",
        "chain_sum, 4 terms",
    ):
        assert part in text, part
    (row,) = [line for line in text.split("\n") if line.startswith("chain_sum, 4 terms")]
    assert row.split()[-3:] == ["0.500", "35.0", "1.000"]  # unknown, tokens, NRP share


def test_problems_without_a_stated_difficulty_get_none():
    found = build_report(IDENTITY, PROBLEMS[2:], 1, SCORED[4:], [40])
    assert found["by_difficulty"] == {} and "these problems state none" in report_text(found)


def test_text_of_nothing():
    assert "accuracy (pass@1) -" in report_text(report(scored=[]))
