"""Filling a batch over several rounds."""

from collections import Counter
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.curriculum import BatchFiller, BatchNotFilled, DropReason, GroupKind, classify, easy_quota, easy_target

M, E, W, U = GroupKind.MIXED, GroupKind.EASY, GroupKind.ALL_WRONG, GroupKind.UNKNOWN


@pytest.mark.parametrize(
    "verdicts,kind",
    [
        ([True, True], E),
        ([True, False], M),
        ([False, False, None], W),
        ([True, None, True], E),
        ([None, True, None], U),
        ([None, None], U),
        ([], U),
        (list(np.array([True, False])), M),
    ],
)
def test_classify(verdicts, kind):
    assert classify(verdicts) is kind


def test_a_verdict_object_is_not_taken_for_true():
    class Says(StrEnum):
        WRONG = "wrong"

    for verdict in (Says.WRONG, "right", 1, 0.0):
        with pytest.raises(TypeError, match="True, False or None"):
            classify([verdict, True])


def test_quota_of_each_round():
    assert easy_quota(0.2, kept=30, available=40) == 7
    assert easy_quota(0.2, kept=25, available=3) == 3
    assert easy_quota(0.2, kept=40, available=40) == 10
    assert easy_quota(-0.02, 30, 40) == easy_quota(0.0, 30, 40) == 0
    assert easy_quota(1.3, 30, 40) == 40


def test_easy_groups_of_a_full_batch():
    assert [easy_target(kappa, 64) for kappa in (0.2, 0.3, 0.4, 0.6)] == [13, 19, 26, 38]
    assert easy_target(0.4, 24) == 10
    assert easy_target(-0.02, 24) == 0 and easy_target(1.0, 24) == 23 and easy_target(0.6, 1) == 0


def rounds(filler, *counts):
    """Add rounds of {kind: count}; groups are (round, kind, number)."""
    for number, count in enumerate(counts):
        filler.add([((number, kind, i), kind) for kind, n in count.items() for i in range(n)])
    return filler


def test_two_rounds_fill_a_batch_and_the_surplus_is_counted():
    filler = rounds(BatchFiller(64, 0.2, 10), {M: 30, E: 40, W: 50})
    assert not filler.done and filler.missing == 21
    result = rounds(filler, {M: 25, E: 3, U: 2}).result()
    assert (len(result.groups), result.mixed, result.easy, result.rounds) == (64, 51, 13, 2)
    assert result.realised_share == 13 / 64 and not result.partial
    assert result.drops == {
        DropReason.ALL_WRONG: 50,
        DropReason.UNKNOWN: 2,
        DropReason.EASY_SURPLUS: 30,
        DropReason.OVERFLOW: 4,
    }


def test_a_shortfall_of_easy_groups_is_made_up_in_a_later_round():
    filler = rounds(BatchFiller(10, 0.4, 5), {M: 5, E: 0}, {M: 0, E: 2}, {M: 1, E: 9})
    result = filler.result()
    assert (result.mixed, result.easy) == (6, 4)


def test_mixed_groups_take_the_places_of_missing_easy_ones_but_not_the_reverse():
    assert rounds(BatchFiller(10, 0.4, 5), {M: 10, E: 1}).result().easy == 1
    scarce = rounds(BatchFiller(10, 0.4, 5), {M: 5, E: 100})
    assert not scarce.done and scarce.missing == 1


def test_high_constant_kappa():
    result = rounds(BatchFiller(24, 0.4, 10), {M: 20, E: 20}).result()
    assert (result.mixed, result.easy, result.easy_wanted) == (14, 10, 10)


def test_kappa_zero_and_below_take_no_easy_group():
    for kappa in (0.0, -0.3):
        result = rounds(BatchFiller(4, kappa, 10), {M: 4, E: 9}).result()
        assert result.easy == 0 and result.drops[DropReason.EASY_SURPLUS] == 9


def test_without_a_kappa_groups_enter_in_the_order_sampled():
    filler = BatchFiller(5, None, 3)
    filler.add([("a", E), ("b", W), ("c", M), ("d", U)])
    assert not filler.done and filler.missing == 3
    filler.add([("e", E), ("f", E), ("g", E), ("h", M), ("i", E)])
    result = filler.result()
    assert result.groups == ("a", "c", "e", "f", "g") and (result.mixed, result.easy) == (1, 4)
    assert result.easy_wanted is None and result.realised_share == 0.8
    assert dict(result.dropped) == {"b": "all_wrong", "d": "unknown", "h": "overflow", "i": "overflow"}


def test_without_a_kappa_easy_groups_alone_make_a_batch():
    assert rounds(BatchFiller(3, None, 1), {E: 3}).result().realised_share == 1
    partial = rounds(BatchFiller(3, None, 1, min_share=0.3), {E: 1, W: 2}).result()
    assert partial.partial and partial.easy == 1
    with pytest.raises(BatchNotFilled, match="only 0 of 3"):
        rounds(BatchFiller(3, None, 1, min_share=0.01), {W: 3}).result()


def test_all_wrong_prompts_stop_at_the_limit_with_counts():
    filler = BatchFiller(4, 0.2, 3)
    while not filler.done:
        rounds(filler, {W: 10})
    assert filler.rounds == 3
    with pytest.raises(BatchNotFilled, match=r"only 0 of 4 .* after 3 rounds .*30 all_wrong") as error:
        filler.result()
    assert isinstance(error.value, UserError)
    with pytest.raises(RuntimeError, match="done"):
        filler.add([])


def test_one_mixed_prompt_in_ten_fills_over_rounds_or_names_what_it_kept():
    assert rounds(BatchFiller(4, 0.0, 10), *[{M: 1, W: 9}] * 4).result().rounds == 4
    with pytest.raises(BatchNotFilled, match="only 2 of 4"):
        rounds(BatchFiller(4, 0.0, 2), *[{M: 1, W: 9}] * 2).result()


def test_a_partial_batch_keeps_the_share_and_needs_half():
    result = rounds(BatchFiller(24, 0.4, 2, min_share=0.5), {M: 4, E: 50}, {M: 5, E: 50}).result()
    assert (result.mixed, result.easy, result.partial, result.wanted) == (9, 6, True, 24)
    with pytest.raises(BatchNotFilled, match="only 11 of 24"):
        rounds(BatchFiller(24, 0.4, 1, min_share=0.5), {M: 7, E: 50}).result()
    with pytest.raises(BatchNotFilled):
        rounds(BatchFiller(24, 0.4, 1, min_share=0.5), {E: 50}).result()


def test_the_end_of_the_data_ends_the_filling():
    filler = rounds(BatchFiller(4, 0.0, 10), {M: 1})
    with pytest.raises(RuntimeError, match="9 rounds are left"):
        filler.result()
    filler.close()
    with pytest.raises(BatchNotFilled, match="ran out"):
        filler.result()


@pytest.mark.parametrize("batch,max_rounds", [(0, 3), (4, 0), (4, -1)])
def test_a_limit_of_nothing_is_refused(batch, max_rounds):
    with pytest.raises(UserError, match="at least 1"):
        BatchFiller(batch, 0.1, max_rounds)


def test_easy_share_counts_all_wrong_groups_but_not_unknown_ones():
    filler = BatchFiller(64, 0.2, 10)
    assert filler.easy_share == 0.0
    assert rounds(filler, {M: 3, E: 2, W: 5, U: 7}).easy_share == 0.2


kinds = st.lists(st.sampled_from(list(GroupKind)), max_size=30)


@given(st.integers(1, 12), st.none() | st.floats(-0.5, 1.5), st.lists(kinds, min_size=1, max_size=5), st.booleans())
def test_every_group_is_in_the_batch_or_dropped_once_and_the_share_is_bounded(batch, kappa, sampled, partial):
    filler = BatchFiller(batch, kappa, len(sampled), partial)
    added = []
    for number, round_kinds in enumerate(sampled):
        if not filler.done:
            new = [((number, i), kind) for i, kind in enumerate(round_kinds)]
            filler.add(new)
            added += new
    try:
        result = filler.result()
    except BatchNotFilled:
        assert filler.missing > 0
        return
    assert Counter(result.groups) + Counter(g for g, _ in result.dropped) == Counter(g for g, _ in added)
    assert len(result.groups) == result.mixed + result.easy <= batch
    assert kappa is None or result.easy <= easy_target(kappa, batch)
    assert result.partial or len(result.groups) == batch
    order = [g for g, _ in added]
    assert list(result.groups) == sorted(result.groups, key=order.index)
