"""Rows of the table of serving levers that were measured before: taken over, or refused, never overwritten."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jobs import bench_serve
from jobs._bench_answers import Price
from jobs._bench_measure import Bench, Plan, not_run
from jobs._bench_rows import Choices, chosen
from jobs._bench_serve_figures import Slo
from jobs._evaluation import Evaluation
from pipeline.config import UserError, load_config

CHOICES = Choices(8, (2, 4))


def config():
    return load_config("infra/presets/tiny.yaml", [])


class Canned(Bench):
    """Entries without servers; `asked` is what was measured, on top of what."""

    def entry(self, row, stack):
        self.asked.append((row.name, list(stack)))
        told = {"row": row.name, "on_top_of": list(stack)}
        return told | (not_run("no AMX") if row.name == "C" else {"ran": True, "draft_length": 2})


def test_rows_that_are_there_are_not_measured_again(tmp_path):
    evaluation = Evaluation(config(), "x", None, [SimpleNamespace(id="p")])
    some = Plan(4, 1, (8,), math.inf, 0.0, Slo(1, 1), Price(1.0, "core", 2), CHOICES, ["a"])
    bench = Canned(config(), some, evaluation, None, tmp_path, lambda count: None)
    bar = SimpleNamespace(n=0, update=lambda count: setattr(bar, "n", bar.n + count), set_postfix_str=lambda text: None)
    rows = chosen("B,C,D,E,F")
    bench.asked = []
    first = bench_serve._entries(bench, rows, bar)
    assert bench.asked == [("B", []), ("C", []), ("D", []), ("E", ["D"]), ("F", ["D"])]
    assert bar.n == sum(bench_serve._requests(row, bench) for row in rows) == 5 * 5 + 5  # E has two lengths
    bench.asked = []
    assert bench_serve._entries(bench, rows, bar) == first and bench.asked == [("C", [])]
    bench.asked, bench.plan = [], replace(some, requests=5)
    files = {path: path.read_bytes() for path in tmp_path.rglob("row.json")}
    with pytest.raises(UserError, match=f"{tmp_path} holds row B measured with another config.*another run.name"):
        bench_serve._entries(bench, chosen("A,B"), bar)  # other requests: another measurement
    bench.plan = some
    with pytest.raises(UserError, match="row E measured with D below it, now nothing; give another run.name"):
        bench_serve._entries(bench, chosen("E"), bar)
    assert bench.asked == [] and files == {path: path.read_bytes() for path in tmp_path.rglob("row.json")}


def test_a_torn_row_is_measured_again_and_said(tmp_path, caplog):
    evaluation = Evaluation(config(), "x", None, [SimpleNamespace(id="p")])
    some = Plan(4, 1, (8,), math.inf, 0.0, Slo(1, 1), Price(1.0, "core", 2), CHOICES, ["a"])
    bench = Canned(config(), some, evaluation, None, tmp_path, lambda count: None)
    bar = SimpleNamespace(n=0, update=lambda count: None, set_postfix_str=lambda text: None)
    file = tmp_path / "rows/A/row.json"
    file.parent.mkdir(parents=True)
    for torn in ('{"identity": {"conf', "[]", "{}", ""):
        file.write_text(torn)
        bench.asked = []
        bench_serve._entries(bench, chosen("A"), bar)
        assert bench.asked == [("A", [])] and json.loads(file.read_text())["entry"]["ran"]
        assert "rows/A/row.json is torn" in caplog.text and list(file.parent.iterdir()) == [file]
        caplog.clear()
