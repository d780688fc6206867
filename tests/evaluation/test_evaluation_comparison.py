"""Merging records of arms: scores, spreads, budgets, and what the page says. Values by hand."""

import json

import pytest

from pipeline.evaluation.comparison import budget, compare, covariance, resampled
from pipeline.evaluation.comparison_text import ahead, markdown, table
from pipeline.evaluation.measured import FIGURES, level_of, measure, words_per_reply
from pipeline.problems import Problem
from pipeline.traces import Stop
from tests.loop.builders import scored

ABOUT = {
    "name": "c",
    "config_digest": "a" * 64,
    "model_digest": "b" * 64,
    "seeds": [0, 1],
    "steps": 2,
    "prompts_per_step": 6,
    "group_size": 4,
    "curriculum": {"rule": "constant"},
    "held_out": {"problems": 4, "samples": 1},
    "trained_on": ["sums"],
    "traces_per_arm": 48,
}


def figures(accuracy, tokens, nrp=0.5):
    each = tokens / accuracy if accuracy else None
    return {"accuracy": accuracy, "tokens_mean": tokens, "nrp_share": nrp, "tokens_per_correct": each, "n": 2}


def record(arm, seed, sums, other, **changes):
    """`sums` and `other`: (accuracy, tokens) of the two families."""
    both = [(a + b) / 2 for a, b in zip(sums, other, strict=True)]
    families = {"sums": figures(*sums), "other": figures(*other)}
    replies = [(True, both[1] - 5), (False, both[1] + 5)]
    measured = {**figures(*both), "by_family": families, "replies": replies}
    spent = {"traces": 48, "tokens_sampled": 1000, "kept_share": 0.5, "issued_digest": f"p{seed}", "curves": {}}
    return {"arm": arm, "seed": seed, "measured": measured, **({} if arm == "start" else spent), **changes}


STARTS = [record("start", 0, (0.5, 100), (0.5, 300)), record("start", 1, (0.4, 100), (0.4, 100))]
DECS = [record("decs", 0, (0.6, 50), (0.6, 150)), record("decs", 1, (0.5, 40), (0.3, 40))]
GRPO = [record("grpo", 0, (0.7, 90), (0.5, 310)), record("grpo", 1, (0.4, 30), (0.4, 50))]
ALL = [*STARTS, *DECS, *GRPO]


def test_each_seed_is_scored_against_the_start_of_the_same_seed():
    found = compare(ALL, ABOUT, [])
    decs = found["arms"]["decs"]["seeds"]
    assert decs["0"]["aes"] == pytest.approx(0.5 + 3 * 0.2)
    assert decs["1"]["aes"] == pytest.approx(0.6)
    assert decs["1"]["by_family"]["other"]["aes"] == pytest.approx(0.6 - 5 * 0.25)
    assert {seed["aes"] for seed in found["start"]["seeds"].values()} == {0}


def test_means_and_spreads_over_seeds():
    decs = compare(ALL, ABOUT, [])["arms"]["decs"]
    assert decs["mean"]["accuracy"] == pytest.approx(0.5) and decs["spread"]["accuracy"] == pytest.approx(0.2 / 2**0.5)
    assert decs["mean"]["by_family"]["sums"]["tokens_mean"] == 45 and decs["mean"]["tokens_sampled"] == 1000
    assert decs["covariance"][0][0] == pytest.approx((100 - 40) ** 2 / 2) and decs["covariance_over"] == "seeds"
    one = compare([STARTS[0], DECS[0]], ABOUT, [])["arms"]["decs"]
    assert one["spread"]["accuracy"] is None and one["covariance_over"] == "resampled replies"


def test_a_figure_that_one_seed_lacks_has_no_mean():
    lacking = record("decs", 1, (0.5, 40), (0.3, 40))
    lacking["measured"]["nrp_share"] = None
    found = compare([*STARTS, DECS[0], lacking], ABOUT, [])["arms"]["decs"]
    assert found["mean"]["nrp_share"] is None and found["seeds"]["0"]["nrp_share"] == 0.5


def test_aes_needs_a_base_that_solves_something():
    start = record("start", 0, (0.0, 100), (0.5, 300))
    found = compare([start, DECS[0]], ABOUT, [])["arms"]["decs"]["seeds"]["0"]
    assert found["by_family"]["sums"]["aes"] is None and found["aes"] == pytest.approx(0.5 + 3 * 1.4)


def test_equal_budgets_are_counted_not_assumed():
    assert budget([*DECS, *GRPO], 48) == {"traces_per_arm": 48, "equal": True, "complaints": []}
    short = record("kimi", 0, (0.6, 50), (0.6, 50), traces=47)
    strange = record("tlmre", 1, (0.6, 50), (0.6, 50), issued_digest="other")
    found = budget([*DECS, short, strange], 48)
    assert not found["equal"]
    assert found["complaints"] == [
        "kimi (seed 0) sampled 47 traces, not 48",
        "seed 1: arms saw different problems: [['decs'], ['tlmre']]",
    ]


def test_the_comparison_is_plain_json_without_single_replies():
    text = json.dumps(compare(ALL, ABOUT, [{"arm": "x", "seed": 0, "why": "no room"}]))
    assert "replies" not in text and '"why": "no room"' in text


def test_resampling_one_seed():
    points = resampled([(True, 10), (False, 30), (None, 20)], rounds=500)
    tokens, accuracy = (sum(column) / 500 for column in zip(*points, strict=True))
    assert tokens == pytest.approx(20, abs=1) and accuracy == pytest.approx(0.5, abs=0.05)
    assert points == resampled([(True, 10), (False, 30), (None, 20)], rounds=500)
    assert resampled([(None, 5)]) == [] and covariance([{"replies": [(None, 5)]}]) is None


def test_where_another_arm_is_ahead():
    found = ahead(compare(ALL, ABOUT, []))
    assert [(loss["family"], loss["figure"]) for loss in found] == [("other", "aes")]  # accuracies are equal, at 0.45
    (loss,) = found
    # seed 0: -1/30 against 0.5 + 3 * 0.2; seed 1: 0.5 against 0.6 - 5 * 0.25
    assert (loss["arm"], loss["seeds_ahead"], loss["seeds"]) == ("grpo", 1, 2)
    assert loss["theirs"] == pytest.approx((-1 / 30 + 0.5) / 2) and loss["ours"] == pytest.approx((1.1 - 0.65) / 2)


def test_without_decs_nothing_is_ahead_of_it():
    assert ahead(compare([*STARTS, *GRPO], ABOUT, [])) == []


def test_losses_count_the_seeds_in_which_they_hold():
    better = [record("grpo", 0, (0.7, 60), (0.6, 150)), record("grpo", 1, (0.4, 30), (0.3, 40))]
    losses = ahead(compare([*STARTS, *DECS, *better], ABOUT, []))
    found = {(loss["family"], loss["figure"]): loss for loss in losses}
    loss = found[("sums", "tokens_per_correct")]
    assert ("sums", "tokens_mean") not in found  # 45 both
    assert (loss["seeds_ahead"], loss["seeds"]) == (1, 2)
    assert loss["theirs"] == pytest.approx((60 / 0.7 + 30 / 0.4) / 2)
    assert loss["ours"] == pytest.approx((50 / 0.6 + 80) / 2)


def test_table_has_the_start_model_and_every_arm():
    lines = table(compare(ALL, ABOUT, [])).splitlines()
    assert [line.split()[0] for line in lines] == ["arm", "start", "decs", "grpo"]
    assert "0.500 ± 0.141" in lines[2] and len({len(line) for line in lines}) == 1


def test_the_page_is_made_of_the_comparison_alone():
    failures = [{"arm": "kimi", "seed": 1, "why": "no room"}]
    uneven = record("tlmre", 0, (0.9, 10), (0.9, 10), traces=40)
    page = markdown(compare([*ALL, uneven], ABOUT, failures), {"tradeoff": "images/x.png"})
    assert "| decs | 0.500 ± 0.141 | 70.0 ± 42.4 |" in page
    assert "![Accuracy against tokens a reply](images/x.png)" in page and page.count("![") == 1
    assert "**kimi (seed 1) failed:** no room" in page
    assert "**the budgets were not equal**" in page and "tlmre (seed 0) sampled 40 traces, not 48" in page
    assert "| all | accuracy | tlmre | 0.900 | 0.500 | 1 of 1 |" in page
    assert "## other (not trained on)" in page and "## sums\n" in page
    assert "(counted: equal)" in markdown(compare(ALL, ABOUT, []), {})
    alone = markdown(compare([*STARTS, *DECS], ABOUT, []), {})
    assert "In no figure and no family is another arm ahead" in alone
    assert "DECS was not among the arms" in markdown(compare([*STARTS, *GRPO], ABOUT, []), {})


def test_words_are_counted_in_the_thinking_only():
    texts = ["Wait, Wait. But so</think>Wait", "Waiting. Hmm"]
    assert words_per_reply(texts, "</think>") == {"Wait": 1.0, "But": 0.5, "Hmm": 0.5, "Alternatively": 0.0}
    assert words_per_reply([], "</think>")["Wait"] is None


def test_level_and_family_come_from_the_problem():
    assert level_of(Problem("p", "", "", "s", {"terms": 3})) == "3"
    assert level_of(Problem("p", "", "", "s", {"level": "Level 2", "terms": 3})) == "Level 2"
    assert level_of(Problem("p", "", "", "s")) is None


def test_a_measurement_by_hand():
    one, two = scored(True, 6, think=4, prefix=2), scored(False, 8, think=8, stop=Stop.LENGTH)
    problem = Problem(one.trace.problem_id, "q", "a", "tiny/x", {"family": "x", "terms": 2})
    found = measure([one, two], {problem.id: problem}, "</think>")
    assert [found[name] for name in FIGURES] == [0.5, 7, 0.5, 14]
    assert found["by_family"]["x"]["nrp_by_level"] == {"2": 0.5} and found["by_family"]["x"]["n"] == 2
    assert found["replies"] == [(True, 6), (False, 8)]
