"""Requested beside effective: which rows differ, and how the table reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.effective import Row, compare, differences, table

values = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
options = st.dictionaries(st.text("abc", min_size=1, max_size=3), values, max_size=5)


def test_rows():
    asked = {"block_size": 16, "async_scheduling": True, "dtype": None, "spec": {"k": 4, "method": "ngram"}, "gone": 1}
    found = {"block_size": 128, "async_scheduling": True, "dtype": "float32", "spec": {"k": 4}, "tokens": 9}
    assert compare(asked, found) == [
        Row("block_size", 16, 128, True),
        Row("gone", 1, "(not told)", True),
        Row("spec.method", "ngram", "(not told)", True),
        Row("async_scheduling", True, True, False),
        Row("dtype", None, "float32", False),
        Row("spec.k", 4, 4, False),
        Row("tokens", None, 9, False),
    ]


@pytest.mark.parametrize(
    ("want", "have", "differs"),
    [(2, 2.0, False), (True, 1, True), (0, False, True), ("2", 2, True), ([1, 2], (1, 2), False), ([1], [1, 2], True),
     ([[1, True]], [[1, 1]], True), (False, False, False), ({}, {}, False), ({}, {"a": 1}, True), (None, False, False)],
)  # fmt: skip
def test_what_counts_as_different(want, have, differs):
    assert bool(differences(compare({"x": want}, {"x": have}))) is differs


def test_table():
    text = table(compare({"async": True, "blocks": 16, "left": None}, {"async": False, "blocks": 16, "left": 3}))
    assert text.splitlines() == [
        "   option  requested  effective",
        "!  async   true       false",
        "   blocks  16         16",
        "   left    -          3",
        "1 of 3 options did not take effect",
    ]
    assert table(compare({"a": 1}, {"a": 1})).endswith("all that was asked for is in effect")


@given(options)
def test_a_thing_agrees_with_itself(some):
    assert differences(compare(some, some)) == []


@given(options, options)
def test_every_option_has_one_row_and_every_difference_was_asked_for(asked, found):
    rows = compare(asked, found)
    assert sorted(row.name for row in rows) == sorted(asked.keys() | found.keys())
    assert all(asked[row.name] is not None for row in differences(rows))
