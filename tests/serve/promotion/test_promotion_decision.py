"""The gate's decision: figures worked out by hand, and what must hold whatever is measured."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import load_config
from pipeline.config.schema import Gate
from pipeline.evaluation.tally import Measurement, Tally
from serve.promotion.decision import decide, limits_of

LIMITS = Gate(min_problems=2)


def measured(rows, digest="c", asked="q", **options):
    """`rows`: (right, tokens) or a Tally, a problem each."""
    problems = {
        f"p{i}": row if isinstance(row, Tally) else Tally(1, row[0], 0, 0, row[1]) for i, row in enumerate(rows)
    }
    return Measurement(1, digest, asked, problems, **options)


def crossed(decision):
    return [check.limit for check in decision.crossed]


def check(decision, name):
    return next(check for check in decision.checks if check.limit == name)


def test_figures_by_hand():
    candidate = measured([Tally(2, 1, 0, 0, 20), Tally(2, 2, 0, 1, 40), Tally(2, 0, 1, 0, 60), Tally(2, 0, 2, 0, 80)])
    champion = measured([Tally(2, 2, 0, 0, 40), Tally(2, 1, 0, 0, 40), Tally(2, 1, 1, 0, 40), Tally(2, 1, 0, 0, 40)])
    found = decide(candidate, champion, Gate(min_problems=4, max_accuracy_drop=0.4, max_tokens_ratio=1.25))
    # by problem: 1/2, 1, 0 and no verdict, against 1, 1/2, 1 and 1/2: differences -1/2, 1/2, -1 over three problems
    assert check(found, "accuracy").value == pytest.approx(0.5)
    assert check(found, "accuracy difference").value == pytest.approx(-1 / 3)
    assert check(found, "tokens ratio").value == pytest.approx(25 / 20)
    assert check(found, "unknown rate").value == pytest.approx(3 / 8)
    assert check(found, "truncation rate").value == pytest.approx(1 / 8)
    assert check(found, "problems in common").value == 4 and check(found, "tokens a reply, champion").value == 20


def test_a_drop_is_refused_by_its_estimate_or_by_its_interval():
    champion = measured([(1, 10)] * 100)
    small = Gate(max_accuracy_drop=0.2)
    few = decide(measured([(0, 10)] * 10 + [(1, 10)] * 90), champion, small)  # -0.10: within the limit, but certain
    assert crossed(few) == ["accuracy difference"] and check(few, "accuracy difference").interval[1] < 0
    one = decide(measured([(0, 10)] + [(1, 10)] * 99), champion, small)  # one problem: a third of the draws lack it
    assert one.passed and check(one, "accuracy difference").interval[1] == 0
    mixed = [(0, 10)] * 40 + [(1, 10)] * 20 + [(1, 10)] * 40
    turned = measured([(1, 10)] * 40 + [(0, 10)] * 20 + [(1, 10)] * 40)
    noisy = decide(measured(mixed), turned, Gate(max_accuracy_drop=0.1, min_problems=100))  # -0.2, well beyond
    assert crossed(noisy) == ["accuracy difference"]


def test_twice_the_tokens_are_refused_and_fewer_never():
    champion = measured([(1, 10 + i % 5) for i in range(60)])
    assert crossed(decide(measured([(1, 2 * (10 + i % 5)) for i in range(60)]), champion, LIMITS)) == ["tokens ratio"]
    assert decide(measured([(1, 5)] * 60), champion, LIMITS).passed


def test_a_longer_mean_that_one_problem_makes_is_not_certain_enough():
    champion = measured([(1, 10)] * 60)
    lone = decide(measured([(1, 10)] * 59 + [(1, 400)]), champion, LIMITS)
    assert check(lone, "tokens ratio").value > 1.25 and lone.passed


@pytest.mark.parametrize(
    "row,limit", [(Tally(1, 0, 1, 0, 9), "unknown rate"), (Tally(1, 1, 0, 1, 9), "truncation rate")]
)
def test_rates_stand_by_themselves(row, limit):
    rows = [row] * 40 + [(1, 10)] * 60
    assert crossed(decide(measured(rows), None, Gate(), first=True)) == [limit]
    assert decide(measured([row] + [(1, 10)] * 99), None, Gate(), first=True).passed


def test_parity_and_too_few_problems():
    limits = Gate(parity_limit=1e-3)
    assert crossed(decide(measured([(1, 9)] * 50, parity=0.02), None, limits, first=True)) == ["parity (nats)"]
    assert crossed(decide(measured([(1, 9)] * 50, parity=float("inf")), None, limits, first=True)) == ["parity (nats)"]
    assert decide(measured([(1, 9)] * 50, parity=1e-4), None, limits, first=True).passed
    assert decide(measured([(1, 9)] * 50), None, limits, first=True).passed  # not measured: shown as unknown
    assert crossed(decide(measured([(1, 9)] * 49), None, limits, first=True)) == ["problems answered"]
    assert "problems answered" in crossed(decide(measured([]), None, limits, first=True))
    assert crossed(decide(measured([(1, 9)] * 60), measured([(1, 9)] * 9), limits)) == ["problems in common"]


def test_the_first_version_has_no_champion_and_the_decision_says_so():
    found = decide(measured([(1, 9)] * 50), None, Gate(), first=True)
    assert found.passed and found.reason == "all limits hold (there is no champion to compare with)"


def test_nothing_passes_beside_a_champion_that_is_not_measured():
    poor = decide(measured([(1, 5000)] * 2 + [(0, 5000)] * 58), None, Gate(), name="v7-seven")
    assert not poor.passed and not poor.crossed and poor.reason == "the champion v7-seven is not measured"
    wrong = decide(measured([(0, 9)] * 60), None, Gate())
    assert wrong.reason == "the champion is not measured; accuracy 0 [0, 0], allowed 0.01"


def test_other_questions_do_not_compare():
    with pytest.raises(ValueError, match="other problems or sampling"):
        decide(measured([(1, 1)] * 2), measured([(1, 1)] * 2, asked="r"), LIMITS)


def test_the_reason_names_figure_interval_and_limit():
    found = decide(measured([(0, 20)] * 60), measured([(1, 10)] * 60), Gate())
    assert found.reason == (
        "accuracy 0 [0, 0], allowed 0.01; accuracy difference -1 [-1, -1], allowed -0.05; "
        "tokens ratio 2 [2, 2], allowed 1.25"
    )
    assert found.checks[1].row() == {
        "limit": "accuracy", "value": 0.0, "low": 0.0, "high": 0.0, "allowed": 0.01, "outcome": "crossed",
    }  # fmt: skip


@pytest.mark.parametrize(
    "overrides,limit",
    [([], 1e-3), (["engine.dtype=bfloat16"], None), (["gate.parity_limit=0.5", "engine.dtype=bfloat16"], 0.5)],
)
def test_parity_is_held_against_engines_that_can_be_exact(overrides, limit):
    assert limits_of(load_config(None, overrides)).parity_limit == limit


SOME = st.integers(0, 3)


def tallies(right=SOME):
    def row(replies, known, ok, cut, tokens):
        known = min(known, replies)
        return Tally(replies, min(ok, known), replies - known, min(cut, replies), tokens)

    return st.builds(row, st.integers(1, 3), SOME, right, SOME, st.integers(1, 500))


@settings(max_examples=50)
@given(st.lists(tallies(), min_size=2, max_size=12), st.floats(0, 1), st.floats(1, 3))
def test_an_equal_candidate_is_never_refused_for_being_worse(rows, drop, ratio):
    limits = Gate(min_problems=2, max_accuracy_drop=drop, max_tokens_ratio=ratio)
    found = decide(measured(rows), measured(rows, digest="d"), limits)
    assert not {"accuracy difference", "tokens ratio", "problems in common"} & set(crossed(found))


@settings(max_examples=50)
@given(st.lists(tallies(right=st.just(0)), max_size=12), st.booleans(), st.floats(0.001, 1))
def test_a_candidate_without_a_right_answer_is_always_refused(rows, alone, least):
    limits = Gate(min_problems=2, min_accuracy=least)
    assert not decide(measured(rows), None if alone else measured(rows), limits, first=alone).passed


@settings(max_examples=20)
@given(st.lists(st.tuples(tallies(), tallies()), min_size=2, max_size=12), st.data())
def test_a_better_candidate_crosses_no_further_limit(pairs, data):
    champion = measured([theirs for _, theirs in pairs])
    worse = [ours for ours, _ in pairs]
    better = []
    for row in worse:
        right = data.draw(st.integers(row.right, row.replies - row.unknown))
        cut, tokens = data.draw(st.integers(0, row.truncated)), data.draw(st.integers(1, row.tokens))
        better.append(Tally(row.replies, right, row.unknown, cut, tokens))
    assert set(crossed(decide(measured(better), champion, LIMITS))) <= set(
        crossed(decide(measured(worse), champion, LIMITS))
    )
