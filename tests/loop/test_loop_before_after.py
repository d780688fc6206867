"""Two versions on the same problems: hand-made replies, and agreement with the summary of an evaluation."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation import ScoredTrace, aes, summarise
from pipeline.loop.before_after import LEAST, Answered, answered, compare
from pipeline.problems import Problem
from pipeline.tracking.run_report_data import Estimate, FigureName
from tests.loop.builders import trace

ACCURACY, TOKENS, COST, NRP = FigureName


def scored(problem, length, correct, prefix=None, think=None):
    made = trace(length, problem=problem)
    think = length - 2 if think is None else think
    return ScoredTrace(made, ((0, think),), think, think + 1, 1, correct, prefix)


def problems(*ids, source="sums"):
    return {key: Problem(key, f"What is {key}?", "1", source) for key in ids}


def one(accuracy, tokens, source="sums"):
    return Answered(source, accuracy, tokens, int(tokens), int(accuracy or 0), int(tokens // 2), int(tokens))


def test_figures_by_hand():
    before = answered(
        [scored("a", 10, True, 4, 8), scored("a", 20, False), scored("b", 30, True, 10, 20), scored("b", 40, None)],
        problems("a", "b"),
    )
    after = answered([scored("a", 6, True, 4, 4), scored("b", 14, False)], problems("a", "b"))
    found = compare(before, after, ("0", "3"), "by hand")
    values = {name: (f.before.value, f.after.value, f.change.value) for name, f in found.figures.items()}
    assert values[ACCURACY] == (0.75, 0.5, -0.25)  # a: one of two; b: the one with a verdict
    assert values[TOKENS] == (25.0, 10.0, -0.6)
    assert values[COST] == (50.0, 20.0, -0.6)  # 100 tokens for two right answers, 20 for one
    assert values[NRP] == (14 / 28, 1.0, 0.5)
    assert found.aes == Estimate(aes(0.5, 10, 0.75, 25))
    assert found.where == "by hand" and found.versions == ("0", "3") and found.by_source == {}


def test_problems_that_one_version_lacks_do_not_count():
    before, after = {"a": one(1, 10), "b": one(0, 99)}, {"a": one(1, 5), "c": one(0, 99)}
    found = compare(before, after, ("0", "1"), "")
    assert found.figures[TOKENS].before.value == 10 and found.figures[TOKENS].change.value == -0.5
    nothing = compare(before, {}, ("0", "1"), "")
    assert nothing.figures == {} and nothing.aes == Estimate()


def test_what_has_nothing_to_divide_by_is_not_measured():
    none = {"a": replace(one(0, 10), thinking=0, necessary=0)}
    found = compare(none, none, ("0", "1"), "")
    assert found.figures[COST].before == found.figures[NRP].before == found.aes == Estimate()
    unknown = compare({"a": one(None, 10)}, {"a": one(1, 10)}, ("0", "1"), "")
    assert unknown.figures[ACCURACY].before == Estimate() and unknown.figures[ACCURACY].after.value == 1
    assert unknown.figures[ACCURACY].change == Estimate()


def test_intervals_hold_the_value_and_pairing_narrows_the_change():
    keys = [str(i) for i in range(40)]
    before = {key: one(i % 2, 100 + 10 * i) for i, key in enumerate(keys)}
    after = {key: one(i % 2, 0.5 * (100 + 10 * i)) for i, key in enumerate(keys)}
    found = compare(before, after, ("0", "1"), "")
    tokens = found.figures[TOKENS]
    for estimate in (tokens.before, tokens.after, tokens.change, found.aes):
        assert estimate.low <= estimate.value <= estimate.high
    assert tokens.before.low < tokens.before.value < tokens.before.high
    assert tokens.change.low == pytest.approx(-0.5) == tokens.change.high and tokens.change.sign == -1
    assert found.figures[ACCURACY].change.sign == 0
    assert compare(before, after, ("0", "1"), "") == found  # the same draws again


def test_few_problems_have_no_interval():
    keys = [str(i) for i in range(LEAST)]
    side = {key: one(1, 10) for key in keys}
    assert compare(side, side, ("0", "1"), "").figures[TOKENS].change.low is not None
    fewer = {key: side[key] for key in keys[1:]}
    change = compare(fewer, fewer, ("0", "1"), "").figures[TOKENS].change
    assert change == Estimate(0.0) and change.sign is None


def test_each_source_by_itself_where_there_are_several():
    side = {"a": one(1, 10), "b": one(0, 30, "search")}
    assert compare(side, side, ("0", "1"), "").by_source["search"][TOKENS].before.value == 30


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(4, 50), st.sampled_from([True, False, None]), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_values_are_those_of_an_evaluation(replies):
    traces = [scored(key, n, ok, n // 3 if ok and found else None) for key, n, ok, found in replies]
    side = answered(traces, problems("a", "b", "c"))
    summary, figures = summarise(traces, intervals=False), compare(side, side, ("0", "0"), "").figures
    for name, value in ((TOKENS, summary.tokens_mean), (COST, summary.tokens_per_correct), (NRP, summary.nrp_share)):
        mine = figures[name].before.value
        assert mine is value is None or math.isclose(mine, value)
