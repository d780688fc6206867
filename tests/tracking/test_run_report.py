"""The report of a run: data in, HTML out."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tracking.run_report import MOST_PAIRS, MOST_TRACES, run_report_html
from pipeline.tracking.run_report_curves import MOST_POINTS, curves, numbers_table, thinned
from pipeline.tracking.run_report_data import BeforeAfter, Estimate, Figure
from pipeline.tracking.run_report_pareto import pareto
from pipeline.tracking.run_report_verdict import figures_table, sentence
from pipeline.tracking.svg_chart import axis
from pipeline.tracking.trace_cards import MOST_TOKENS
from tests.tracking.run_report_builders import (
    ACCURACY,
    ATTACK,
    CHANGE,
    HISTORY,
    TOKENS,
    estimate,
    figure,
    report,
    view,
)

NOTHING = BeforeAfter("no problem was answered", ("–", "–"), {})


def island(page):
    return json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)[1])


# --- verdict ---


def test_the_verdict_is_one_sentence_with_every_figure():
    assert sentence(CHANGE) == (
        "Worth it, shorter and more accurate: a reply went from 166.2 to 61.7 tokens, accuracy from 72.3\u00a0% to "
        "93.7\u00a0%, and a right answer from 229.8 to 65.9 tokens; AES +1.52."
    )


@pytest.mark.parametrize(
    ("tokens", "accuracy", "judgement"),
    [
        ((-0.6, 0.1), (0.2, 0.1), "Worth it, shorter and more accurate"),
        ((-0.6, 0.1), (-0.05, 0.1), "Worth it, shorter and not measurably less accurate"),
        ((-0.6, 0.1), (-0.2, 0.1), "A trade-off, shorter but less accurate"),
        ((-0.05, 0.1), (0.2, 0.1), "More accurate, but not shorter"),
        ((-0.05, 0.1), (0.05, 0.1), "No measurable change"),
        ((0.05, 0.1), (-0.2, 0.1), "Not worth it, less accurate and not shorter"),
        ((0.6, 0.1), (0.2, 0.1), "More accurate, but longer"),
        ((0.6, 0.1), (0.0, 0.1), "Not worth it, longer and not more accurate"),
        ((0.6, 0.1), (-0.2, 0.1), "Not worth it, longer and less accurate"),
    ],
)
def test_the_judgement_follows_the_intervals_of_the_changes(tokens, accuracy, judgement):
    changes = {TOKENS: tokens, ACCURACY: accuracy}
    figures = {name: Figure(Estimate(1.0), Estimate(1.0), estimate(*change)) for name, change in changes.items()}
    assert sentence(BeforeAfter("", ("0", "1"), figures)).startswith(f"{judgement}: ")


def test_without_intervals_nothing_is_claimed():
    figures = {TOKENS: Figure(Estimate(100.0), Estimate(50.0), Estimate(-0.5))}
    assert sentence(BeforeAfter("", ("0", "1"), figures)) == (
        "Too little was measured to tell a change from chance: a reply went from 100.0 to 50.0 tokens, accuracy not "
        "measured, and a right answer not measured tokens; AES not measured."
    )
    assert sentence(NOTHING) == "Not measured: no problem was answered."


def test_the_table_has_values_intervals_and_what_is_missing():
    table = figures_table(
        BeforeAfter("", ("0", "8"), {ACCURACY: figure(0.723, 0.9, -0.1), TOKENS: Figure(Estimate(9.0))})
    )
    assert "72.3\u00a0%<small>71.3 to 73.3</small>" in table
    assert "−10.0\u00a0points<small>−11.0 to −9.0</small>" in table
    assert "9.0<small>no interval</small>" in table
    assert table.count("not measured") == 2 + 3 + 3 + 1  # tokens after and change; cost; necessary share; AES
    assert "<summary>" not in table and figures_table(CHANGE).count("<summary>") == 2


# --- charts ---


def test_the_plot_holds_steps_published_versions_start_and_end():
    drawn = pareto(report())
    assert drawn.markup.count('class="average"') == 8 - 1 + 1  # all but the published one, and the legend's
    assert drawn.markup.count('class="published"') == 2 and ">v4<" in drawn.markup
    assert ">start<" in drawn.markup and ">end<" in drawn.markup and drawn.markup.count('class="bars') == 4
    points = drawn.found["pareto"]
    assert len(points) == 8 + 2
    assert points[-1]["rows"] == [["point", "end"], ["version", "8"], ["accuracy", "93.7%"], ["tokens", "61.7"]]
    start, end = points[-2:]
    assert end["x"] < start["x"] and end["y"] < start["y"]  # to the left and up


def test_a_plot_without_ends_or_without_steps():
    assert "not measured" in pareto(report(change=NOTHING, history={})).markup
    assert len(pareto(report(change=NOTHING)).found["pareto"]) == 8
    assert len(pareto(report(history={})).found["pareto"]) == 2


def test_curves_show_what_was_logged_and_name_what_was_not():
    accuracy, tokens, nrp, curriculum = curves({k: v for k, v in HISTORY.items() if "nrp" not in k})
    assert "not measured" in nrp.markup and nrp.found == {}
    assert accuracy.markup.count("<polyline") == 1 and curriculum.markup.count("<polyline") == 2
    first = accuracy.found["accuracy"][0]
    assert first["rows"] == [["steps trained", "0"], ["training batch", "70.0%"], ["sums", "50.0%"]]
    assert "y" not in first and len(tokens.found["tokens"]) == 8


def test_two_held_out_points_are_dots_and_not_a_line():
    accuracy = curves({**HISTORY, "eval/accuracy": {0: 0.7, 8: 0.9}})[0]
    assert accuracy.markup.count("<polyline") == 1 and accuracy.markup.count('<circle class="held-out"') == 2
    assert accuracy.found["accuracy"][-1]["rows"] == [["steps trained", "8"], ["held out", "90.0%"]]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_every_value_lies_within_the_drawing(values):
    drawn = curves({"rollout/tokens_mean": dict(enumerate(map(abs, values)))})[1]
    numbers = [float(n) for pair in re.findall(r'points="([^"]*)"', drawn.markup) for n in re.split("[ ,]", pair)]
    xs, ys = numbers[::2], numbers[1::2]
    assert all(0 <= x <= 420 for x in xs) and all(0 <= y <= 210 for y in ys)


@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=5), st.floats(0, 0.5))
def test_an_axis_holds_its_values_and_pads_within_limits(values, least):
    found = axis(values, str, least=least, limits=(0.0, 1.0))
    assert found.low <= min(values) + 1e-9 and max(values) <= found.high + 1e-9
    assert found.ticks[0] == found.low and found.ticks[-1] == pytest.approx(found.high) and 2 <= len(found.ticks) <= 9
    inside = axis([0.99, 1.0], str, least=0.1, limits=(0.0, 1.0))
    assert inside.high == pytest.approx(1.0) and inside.high - inside.low >= 0.05


def test_a_long_run_keeps_its_published_versions_in_the_plot():
    history = {name: {step: 0.5 for step in range(1201)} for name in ("rollout/accuracy", "rollout/tokens_mean")}
    drawn = pareto(report(history=history, published=(601,), change=NOTHING))
    assert drawn.markup.count('<circle class="published"') == 1 and len(drawn.found["pareto"]) < 500


def test_the_numbers_are_there_as_a_table_and_long_runs_are_thinned():
    table = numbers_table(HISTORY)
    assert table.count("<tr>") == 1 + 8 and "70.0%" in table and "160.0" in table and "of 8" not in table
    long = {"rollout/accuracy": {step: 0.5 for step in range(10_000)}}
    assert f"({MOST_POINTS + 1} of 10000 steps)" in numbers_table(long) and "<th scope=row>9999<" in numbers_table(long)
    assert numbers_table({}) == ""


@given(st.integers(0, 3000))
def test_thinning_keeps_the_first_and_the_last(count):
    kept = thinned(range(count))
    assert len(kept) <= MOST_POINTS + 1 and kept == sorted(set(kept))
    assert not count or (kept[0], kept[-1]) == (0, count - 1)


# --- the page ---


def test_the_sections_come_in_order():
    page = run_report_html(report())
    places = [
        page.index(text)
        for text in ("Worth it", "Accuracy against tokens", "Learning curves", "Sampled for", "Held-out")
    ]
    assert places == sorted(places)
    assert run_report_html(report()) == page


def test_a_run_with_nothing_measured_is_a_page_that_says_so():
    page = run_report_html(report(change=NOTHING, history={}, traces=[], pairs=[]))
    assert "Not measured: no problem was answered." in page and "Sampled for training." in page
    assert page.count("not measured") >= 1 + 4 + 1 + 1 and island(page) == {}


def test_nothing_that_a_data_set_or_a_model_wrote_becomes_markup():
    bad = view(source=ATTACK, problem=ATTACK, version=ATTACK, text=ATTACK)
    change = BeforeAfter(ATTACK, (ATTACK, ATTACK), {ACCURACY: CHANGE.figures[ACCURACY]}, by_source={ATTACK: {}})
    history = {**HISTORY, f"rollout.{ATTACK}/accuracy": {0: 0.5}}
    page = run_report_html(
        report(
            name=ATTACK, facts=[(ATTACK, ATTACK)], change=change, history=history, traces=[bad], traces_from=ATTACK,
            pairs=[(bad, bad)], pairs_from=ATTACK,
        )
    )  # fmt: skip
    assert page.count("<script") == 2 and page.count("</script>") == 2 and "<img" not in page
    assert island(page)["accuracy"][0]["rows"][-2] == [ATTACK, "50.0%"]
    inside = page.split('id="charts">')[1].split("</script>")[0]
    assert inside.isascii() and not set("<>&") & set(inside)


def test_the_page_names_no_place_outside_itself_and_allows_none():
    page = run_report_html(report())
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)|url\(|@import""", page)
    assert re.findall(r"https?://[^\s\"']*", page) == ["http://www.w3.org/2000/svg"] * page.count("w3.org/2000/svg")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy and "script-src 'unsafe" not in policy


def test_the_size_is_bounded_and_the_page_says_what_is_left_out():
    traces = [view(problem=f"Problem {i}", count=3000) for i in range(MOST_TRACES + 15)]
    page = run_report_html(report(traces=traces, pairs=[(traces[0], traces[1])] * (MOST_PAIRS + 2)))
    assert f"Shown here: {MOST_TRACES} of {MOST_TRACES + 15} traces." in page
    assert f"Shown here: {MOST_PAIRS} of {MOST_PAIRS + 2} problems." in page
    assert page.count("class=t ") == MOST_TOKENS * (MOST_TRACES + 2 * MOST_PAIRS)
    assert len(page) < MOST_TOKENS * (MOST_TRACES + 2 * MOST_PAIRS) * 100


def test_only_the_first_trace_of_many_is_open():
    page = run_report_html(report(traces=[view(problem=f"Problem {i}") for i in range(20)]))
    assert page.count(" open>") == 1
