"""The table of features: each row has proofs, each proof is there, and the page is the table's."""

import ast
from functools import cache

import pytest

from pipeline.config import ROOT
from pipeline.config.serving_features import features, page

GROUPS = {  # rows that must not go missing
    "KV cache": 10,
    "scheduling": 6,
    "speculative decoding": 10,
    "quantisation": 4,
    "the class around it": 5,
}
ROWS = features()


@cache
def named_in(file):
    """{test function: its decorators as text} of a file, with those of the whole file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    marks = [ast.unparse(n.value) for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n)]
    return {
        node.name: " ".join([*marks, *(ast.unparse(mark) for mark in node.decorator_list)])
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_no_row_is_missing():
    found = [row.group for row in ROWS.values()]
    assert {group: found.count(group) for group in dict.fromkeys(found)} == GROUPS


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_names_tests_that_are_there(row):
    assert row.today and row.here and row.proofs
    assert bool(row.gpu) == bool(row.why)
    for test in (*row.proofs, *row.gpu):
        file, _, name = test.partition("::")
        assert name in named_in(file), f"{test} is not there"
        assert ("mark.gpu" in named_in(file)[name]) == (test in row.gpu), test
        assert "skip(" not in named_in(file)[name]


def test_the_page_is_current():
    assert (ROOT / "docs/serving_features.md").read_text(encoding="utf-8") == page()
