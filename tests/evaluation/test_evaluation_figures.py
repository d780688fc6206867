"""pass@k, budgets and difficulty by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import load_config
from pipeline.evaluation.figures import budget_figures, by_label, default_budgets, difficulty, pass_figures
from pipeline.evaluation.suites import find_suite, load_suite
from pipeline.problems import Problem
from tests.loop.builders import scored


def samples(problem, *verdicts, length=10):
    return [scored(verdict, length, problem=problem) for verdict in verdicts]


def test_pass_at_k_is_a_mean_over_problems_that_have_the_samples():
    traces = [
        *samples("a", True, False, False, False),
        *samples("b", True, True, True, True),
        *samples("c", False, False, None, None),
        *samples("d", None, None, None, None),
    ]
    found = pass_figures(traces)
    assert list(found) == [1, 2, 4]
    assert found[1]["value"] == pytest.approx((1 / 4 + 1 + 0) / 3) and found[1]["problems"] == 3
    assert found[2]["value"] == pytest.approx((1 / 2 + 1 + 0) / 3) and found[2]["problems"] == 3
    assert found[4]["value"] == 1 and found[4]["problems"] == 2  # problem c has two verdicts only
    assert found[1]["interval"][0] <= found[1]["value"] <= found[1]["interval"][1]


def test_pass_at_k_of_nothing():
    assert pass_figures([]) == {} and pass_figures(samples("a", None)) == {}


@pytest.mark.parametrize(
    "count,ks", [(1, [1]), (2, [1, 2]), (3, [1, 2]), (10, [1, 2, 4, 8]), (128, [2**i for i in range(8)])]
)
def test_k_doubles_as_far_as_samples_reach(count, ks):
    assert list(pass_figures(samples("a", *[True] * count))) == ks


def test_a_reply_longer_than_the_budget_is_unanswered():
    traces = [
        *samples("a", True, length=10),
        *samples("a", True, length=30),
        *samples("b", True, length=20),
        *samples("c", False, length=5),
        *samples("d", None, length=5),
    ]
    found = budget_figures(traces, [20, 9, 30])
    assert list(found) == [9, 20, 30]
    assert [figure["accuracy"] for figure in found.values()] == [0, (1 / 2 + 1 + 0) / 3, (1 + 1 + 0) / 3]
    assert [figure["answered"] for figure in found.values()] == [2 / 5, 4 / 5, 1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([True, False, None]), st.integers(5, 40)), max_size=12),
    st.lists(st.integers(1, 60), min_size=2, max_size=4),
)
def test_more_budget_never_lowers_accuracy(drawn, budgets):
    traces = [scored(verdict, length, problem=problem) for problem, verdict, length in drawn]
    values = [figure["accuracy"] for figure in budget_figures(traces, budgets).values()]
    assert values == [None] * len(values) or values == sorted(values)
    full = budget_figures(traces, [60])[60]["accuracy"]
    assert full is None or full == pytest.approx(pass_figures(traces)[1]["value"])


@pytest.mark.parametrize(
    "limit,budgets",
    [
        (384, [48, 96, 192, 288, 384]),
        (2, [1, 2]),
        (4095, [512, 1024, 2048, 3071, 4095]),
        (4096, [2048, 4096]),
        (16384, [2048, 4096, 8192, 16384]),
        (20000, [2048, 4096, 8192, 16384, 20000]),
    ],
)
def test_default_budgets(limit, budgets):
    assert default_budgets(limit) == budgets


def test_difficulty_is_what_the_source_states():
    meta = {
        "level 4": {"level": "level 4"},
        "chain_sum, 3 terms": {"family": "chain_sum", "terms": 3},
        "search, 1 trial": {"family": "search", "trials": 1},
        "search, 4 trials": {"family": "search", "trials": 4},
        "compare, 5 terms": {"family": "compare", "expressions": ["1 + 2", "3 - 4 + 5"]},
        None: {"row": 3},
    }
    assert [difficulty(Problem("p", "?", "1", "s", m)) for m in meta.values()] == list(meta)


def test_every_tiny_problem_states_a_level():
    assert all(
        difficulty(p) for p in load_suite(find_suite("tiny"), load_config(None, ["problems.held_out.0.size=30"]))
    )


def test_labels_in_natural_order_and_none_left_out():
    traces = [scored(True, problem=name) for name in "abcd"] + [scored(False, problem="b")]
    labels = {"a": "search, 10 trials", "b": "search, 2 trials", "c": None, "d": "chain_sum, 3 terms"}
    found = by_label(traces, labels)
    assert list(found) == ["chain_sum, 3 terms", "search, 2 trials", "search, 10 trials"]
    assert (found["search, 2 trials"].n, found["search, 2 trials"].accuracy) == (2, 0.5)
