"""The numbers of a step, by hand; every name is one of the catalogue's."""

import numpy as np
import pytest

from pipeline.curriculum import BatchFiller, classify
from pipeline.loop.progress import stall_line, step_line
from pipeline.loop.step_metrics import (
    curriculum_metrics,
    learner_metrics,
    length_spread,
    rollout_metrics,
    segment_ratio,
    signal_metrics,
    version_metrics,
)
from pipeline.traces import Stop, VersionSpan
from pipeline.tracking import check
from tests.loop.builders import group, scored


def filled(groups, kappa, wanted, rounds=1):
    filler = BatchFiller(wanted, kappa, rounds)
    filler.add((g, classify(g.verdicts)) for g in groups)
    return filler.result()


EASY = group(scored(True, 6, think=4, prefix=2), scored(True, 10, think=8, prefix=8, segments=((0, 8),)), issue="0/e")
MIXED = group(scored(True, 8, think=6), scored(False, 8, think=8, stop=Stop.LENGTH), issue="0/m")
WRONG = group(scored(False, 4, think=2), scored(False, 4, think=2), issue="0/w")
UNKNOWN = group(scored(None, 4, think=2), scored(True, 4, think=2, prefix=2), issue="0/u")
ALL = [EASY, MIXED, WRONG, UNKNOWN]


def test_rollout_numbers_cover_everything_sampled():
    found = rollout_metrics(ALL)
    assert found["accuracy"] == 4 / 7
    assert found["unknown_rate"] == 1 / 8 and found["grader_unknown"] == 1
    assert found["tokens_mean"] == (6 + 10 + 8 + 8 + 4 * 4) / 8
    assert found["think_tokens_mean"] == (4 + 8 + 6 + 8 + 4 * 2) / 8
    assert (found["traces_sampled"], found["tokens_sampled"]) == (8, 6 + 10 + 8 + 8 + 4 * 4)
    assert found["answer_tokens_mean"] == (1 + 1 + 1 + 0 + 4 * 1) / 8
    assert found["truncated_rate"] == 1 / 8
    assert found["nrp_share_tokens"] == (2 + 8 + 2) / (4 + 8 + 2)
    assert found["nrp_ratio_segments"] == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    assert found["detector_misses"] == 1 / 4
    check(found)


def test_figures_without_a_denominator_are_left_out():
    found = rollout_metrics([WRONG])
    assert found["accuracy"] == 0 and not {"nrp_share_tokens", "nrp_ratio_segments", "detector_misses"} & set(found)
    assert segment_ratio([WRONG]) is None and length_spread([MIXED, UNKNOWN]) is None
    check(found)
    assert rollout_metrics([]) == {"grader_unknown": 0, "traces_sampled": 0, "tokens_sampled": 0}


def test_curriculum_numbers():
    found = curriculum_metrics(filled([*ALL, MIXED, EASY], kappa=0.5, wanted=2), 0.5, easy_share=0.4)
    assert (found["groups_kept"], found["sampling_rounds"], found["kappa"]) == (2, 1, 0.5)
    assert (found["easy_share_wanted"], found["easy_share_realised"], found["easy_share_available"]) == (0.5, 0.5, 0.4)
    assert found["sigma_l"] == 2 and found["kappa_sigma_l"] == 1
    assert found["nrp_ratio_batch"] == pytest.approx((0.5 + 1.0) / 2) and found["kappa_skipped"] == 0
    dropped = {name: value for name, value in found.items() if name.startswith("groups_dropped")}
    assert dropped == {
        "groups_dropped_all_wrong": 1,
        "groups_dropped_easy_surplus": 1,
        "groups_dropped_unknown": 1,
        "groups_dropped_overflow": 1,
    }
    check(found)


def test_without_a_kappa_nothing_is_wanted():
    found = curriculum_metrics(filled([EASY, MIXED], kappa=None, wanted=2), None, easy_share=0.5, skipped=3)
    assert not {"kappa", "easy_share_wanted"} & set(found) and found["kappa_skipped"] == 3
    check(found)


def test_no_easy_group_no_spread():
    assert "sigma_l" not in curriculum_metrics(filled([MIXED], kappa=0.0, wanted=1), 0.0, 0.0)


def test_signal_means_leave_padding_out():
    made = group(scored(True, 2), scored(False, 4, think=3))
    rewards, advantages = np.array([[1, 1, 9, 9], [0, 0, 0, 3]]), np.array([[2, -2, 9, 9], [1, 1, 1, -1]])
    assert signal_metrics([made], [rewards], [advantages]) == {"reward_mean": 5 / 6, "advantage_abs_mean": 8 / 6}
    assert signal_metrics([], [], []) == {}


def test_learner_numbers_get_the_catalogue_names():
    found = learner_metrics({"loss": 0.1, "entropy": 2.0, "parity_mean": 1e-5, "seconds_train": 3.0, "unheard_of": 1.0})
    assert found == {"loss": 0.1, "entropy_estimate": 2.0, "parity_mean_abs": 1e-5, "seconds_train": 3.0}
    check(found)


def test_versions_and_staleness():
    spans = (VersionSpan(3, 0, 2), VersionSpan(5, 2, 6))
    mixed = group(scored(True, version=spans), scored(False, version=5))
    assert version_metrics([mixed], 5, 0) == {"policy_version": 5, "staleness_max": 2, "staleness_violations": 1}
    assert version_metrics([mixed], 5, 2)["staleness_violations"] == 0
    check(version_metrics([mixed], 5, 0))


def test_step_line_without_some_figures():
    line = step_line(0, 40, 1, {"accuracy": 0.5, "tokens_mean": 151.6, "kappa": 0.4, "seconds_step": 12.34})
    assert line.startswith("step 1/40  accuracy 0.500  tokens 152  NRP -  kappa 0.40 (easy -)  v1  12.3 s:")
    assert "\n" not in line


def test_stall_line_names_only_the_late():
    assert stall_line([], 30) is None and stall_line([("the judge", 29.9)], 30) is None
    assert stall_line([("rollout engine 1 to generate", 61.2), ("the judge", 2)], 30) == (
        "waiting for rollout engine 1 to generate (61 s)"
    )
