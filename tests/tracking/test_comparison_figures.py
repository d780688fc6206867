"""Figures of a comparison: what is drawn, from which numbers."""

import math

import pytest

from pipeline.tracking.comparison_figures import (
    comparison_figures,
    curves,
    ellipse_axes,
    ellipse_points,
    levels,
    mean_curve,
    tradeoff,
    words,
)
from pipeline.tracking.figures import save_figure


def seed(tokens, accuracy, curve, levels, words=None):
    family = {"tokens_mean": tokens, "accuracy": accuracy, "words": words or {"Wait": 2.0, "But": 1.0}}
    family["nrp_by_level"] = levels
    return {"tokens_mean": tokens, "accuracy": accuracy, "curves": {"accuracy": curve}, "by_family": {"sums": family}}


def arm(*seeds, covariance=((100.0, 0.0), (0.0, 0.01))):
    mean = {name: sum(s[name] for s in seeds) / len(seeds) for name in ("tokens_mean", "accuracy")}
    return {
        "seeds": {str(i): s for i, s in enumerate(seeds)},
        "mean": {**mean, "by_family": {"sums": {}}},
        "covariance": covariance,
        "covariance_over": "seeds",
    }


FOUND = {
    "start": arm(seed(160, 0.7, [], {"2": 0.3, "10": 0.4}), covariance=None),
    "arms": {
        "decs": arm(
            seed(60, 0.9, [[0, 0.7], [1, 0.9]], {"2": 0.8, "10": None}),
            seed(80, 0.8, [[0, 0.5]], {"2": 1.0, "10": None}),
        ),
        "grpo": arm(seed(150, 0.9, [[0, 0.7], [1, 0.8]], {"2": 0.3, "10": 0.4}, {"Wait": 1.0, "But": None})),
    },
}


def test_ellipse_of_a_known_covariance():
    long, short, angle = ellipse_axes([[4, 0], [0, 1]])
    assert (long, short, angle) == (2, 1, 0)
    long, short, angle = ellipse_axes([[2, 1], [1, 2]])
    assert (long, short, angle) == pytest.approx((math.sqrt(3), 1, math.pi / 4))
    assert ellipse_axes([[1, 0], [0, 9]])[2] == pytest.approx(math.pi / 2)


def test_ellipse_reaches_two_deviations_each_way():
    points = ellipse_points(FOUND["arms"]["decs"])
    assert max(x for x, _ in points) == pytest.approx(70 + 2 * 10) and min(x for x, _ in points) == pytest.approx(50)
    assert max(y for _, y in points) == pytest.approx(0.85 + 2 * 0.1)
    assert ellipse_points(FOUND["start"]) == []


def test_tradeoff_has_a_point_an_arm_and_an_ellipse_where_there_is_one():
    (axes,) = tradeoff(FOUND).axes
    points = {line.get_label(): line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata()) == 1}
    assert points == {"start": [[160, 0.7]], "decs": [[70, pytest.approx(0.85)]], "grpo": [[150, 0.9]]}
    assert sum(len(line.get_xdata()) > 1 for line in axes.lines) == 2
    assert "2 standard deviations over seeds" in axes.get_xlabel()


def test_curves_are_means_over_the_seeds_that_have_the_step():
    assert mean_curve(FOUND["arms"]["decs"], "accuracy") == [(0, pytest.approx(0.6)), (1, 0.9)]
    assert mean_curve(FOUND["arms"]["decs"], "tokens_mean") == []
    panels = curves(FOUND).axes
    assert [line.get_label() for line in panels[0].lines] == ["decs", "grpo"] and not panels[1].lines


def test_words_are_stacked_for_every_arm():
    (axes,) = words(FOUND).axes
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
    assert widths == [[2, 2, 1], [1, 1, 0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["start", "decs", "grpo"]


def test_levels_are_in_order_and_gaps_stay_gaps():
    (axes,) = levels(FOUND).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "10"]
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {"start": [[0, 0.3], [1, 0.4]], "decs": [[0, 0.9]], "grpo": [[0, 0.3], [1, 0.4]]}


def test_without_levels_there_is_no_such_figure(tmp_path):
    bare = {"start": arm(seed(160, 0.7, [], {})), "arms": {}}
    assert levels(bare) is None
    found = comparison_figures(bare)
    assert list(found) == ["tradeoff", "curves", "words"]
    for name, figure in found.items():
        assert save_figure(figure, tmp_path / f"{name}.png").stat().st_size > 1000
