"""Worked cases of the decoupled reward and its advantage, both forms."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.rewards import Outcome, build, group_advantages

GOLDEN = json.loads((Path(__file__).parent / "decs_golden.json").read_text())
FORMS = ("code", "paper")


def outcome_of(trace):
    think = trace["think_length"]
    return Outcome(
        length=trace["length"],
        correct=trace["correct"],
        prefix_length=trace["prefix_length"],
        think_length=trace["length"] if think is None else think,
    )


def strategy(form):
    return build({"name": "decs", "r_plus": GOLDEN["r_plus"], "r_zero": GOLDEN["r_zero"], "form": form})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_worked_case(case, form):
    outcomes = [outcome_of(trace) for trace in case["traces"]]
    rewards = strategy(form).token_rewards(outcomes, case["width"], case["max_length"])
    assert rewards.dtype == np.float64
    np.testing.assert_allclose(rewards, case[form]["rewards"], rtol=0, atol=1e-6)
    advantages = group_advantages(rewards, [o.length for o in outcomes])
    assert advantages.dtype == np.float64
    np.testing.assert_allclose(advantages, case[form]["advantages"], rtol=0, atol=1e-6)


def test_the_file_holds_all_worked_cases():
    names = {case["name"] for case in GOLDEN["cases"]}
    assert {f"G{n}" for n in range(1, 9)} <= names and {f"R{n}" for n in range(30)} <= names


SIGN_TABLE = [  # correct of 16, redundant and necessary advantage: code, then paper form
    (8, 0.8906, 0.9791, 0.7316, 0.9997),
    (12, 0.4653, 0.5673, 0.2755, 0.5830),
    (14, 0.2419, 0.3753, -0.0084, 0.3928),
    (15, 0.0797, 0.2619, -0.2613, 0.2840),
    (16, -3.7497, 0.2500, -3.7499, 0.2500),
]


@pytest.mark.parametrize("n_correct,red_code,nrp_code,red_paper,nrp_paper", SIGN_TABLE)
def test_redundant_tokens_turn_negative_only_in_nearly_all_correct_groups(
    n_correct, red_code, nrp_code, red_paper, nrp_paper
):
    outcomes = [Outcome(16, True, 4, 12)]  # half of max_length, redundant in 4..11
    outcomes += [Outcome(16, True, 12, 12)] * (n_correct - 1) + [Outcome(16, False, None, 16)] * (16 - n_correct)
    for form, redundant, necessary in (("code", red_code, nrp_code), ("paper", red_paper, nrp_paper)):
        advantages = group_advantages(strategy(form).token_rewards(outcomes, 16, 32), [16] * 16)
        assert advantages[0, 5] == pytest.approx(redundant, abs=1e-4)
        assert advantages[1, 5] == pytest.approx(necessary, abs=1e-4)


def test_equal_float32_rewards_of_sixteen_leave_no_residue():
    # Summed and divided in float32 these give -0.119 everywhere instead of 0.
    assert (group_advantages(np.full((16, 5), 1.1, dtype=np.float32), [5] * 16) == 0.0).all()


@pytest.mark.parametrize("form,redundant", [("code", 1.035), ("paper", 0.935)])
def test_tag_and_answer_are_never_redundant(form, redundant):
    # A split word inside the written answer used to drag the tag and the answer into the redundant span.
    outcomes = [Outcome(13, True, 3, 7), Outcome(5, True, 3, 3)]
    rewards = strategy(form).token_rewards(outcomes, 13, 20)
    expected = np.full((2, 13), 1.1)
    expected[0, 3:7] = redundant
    np.testing.assert_allclose(rewards, expected, atol=1e-12)
    advantages = group_advantages(rewards, [13, 5])
    np.testing.assert_allclose(advantages[0, 3:7], -0.7071, atol=1e-4)
    np.testing.assert_allclose(advantages[1, 3:5], 0.7071, atol=1e-4)
    assert not advantages[0, :3].any() and not advantages[0, 7:].any() and not advantages[1, 5:].any()
