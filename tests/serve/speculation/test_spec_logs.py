import gzip
import json
import math

import pytest

from pipeline.config import UserError
from serve.speculation.build import make_policy
from serve.speculation.costs import Timing, fit_costs
from serve.speculation.fit import fit_table, timings
from serve.speculation.fixed import Static, TablePolicy
from serve.speculation.logs import Decision, DecisionLog, read_decisions
from serve.speculation.simulator import simulate, static_sweep
from serve.speculation.state import State
from serve.speculation.workloads import CHANGING


def row(k=2, asked=(2,), emitted=(3,), cost=1.2, step=0, **state):
    keys = {name: state.pop(name) for name in ("drafted", "seconds") if name in state}
    return Decision(step, "ucb", k, asked, emitted, cost, State(**({"batch": len(asked), "k_max": 3} | state)), **keys)


def test_log_round_trip_and_torn_line(tmp_path):
    path = tmp_path / "logs" / "d.jsonl"
    rows = [row(), row(asked=(2, 1), emitted=(1, 2), phase="reasoning", cap=4, drafted=(1, 1), seconds=0.5)]
    log = DecisionLog(path)
    for item in rows:
        log.write(item)
    log.close()
    with open(path, "a") as file:
        file.write('{"v": 1, "st')
    assert list(read_decisions(path)) == rows and log.lines == 2


@pytest.mark.parametrize(
    "change",
    [{"v": 2}, {"asked": [3]}, {"emitted": [4]}, {"cost": 0}, {"state": {"batch": 0}}, {"extra": 1}, {"k": None}],
)
def test_bad_lines_are_named(tmp_path, change):
    path = tmp_path / "d.jsonl"
    data = json.loads(row().as_line()) | change
    path.write_text(row().as_line() + "\n" + json.dumps(data) + "\n")
    with pytest.raises(UserError, match="line 2"):
        list(read_decisions(path))


BIG = 10**400


@pytest.mark.parametrize(
    "change",
    [
        *({"k": value} for value in (1.5, True, "2", 4, -1, BIG)),
        *({"cost": value} for value in (math.nan, math.inf, True, "1", BIG)),
        *({"seconds": value} for value in ("1", math.nan, True, [1], -1)),
        *({"step": value} for value in ("1", 1.0, None, True)),
        *({"drafted": value} for value in (5, ["1"], [1.0], [1, 1], [9], {"1": 1})),
        *({"asked": value} for value in ("2", [2.0], [True], 2)),
        *({"state": {"batch": value, "k_max": 3}} for value in (1.0, True, "1", 10**6 + 1, BIG)),
        *({"state": {"batch": 1, "k_max": value}} for value in (3.0, True, "3", 10**6 + 1, BIG)),
        *({"state": {"batch": 1, "k_max": 3} | part} for part in ({"acceptance": "x"}, {"cap": 1.5}, {"phase": 1})),
        {"policy": 3},
    ],
    ids=lambda change: str(change)[:40],
)
def test_values_of_another_kind_are_named_with_file_and_line(tmp_path, change):
    path = tmp_path / "d.jsonl"
    line = json.dumps(json.loads(row().as_line()) | change)
    path.write_text(row().as_line() + "\n" + line + "\n")
    with pytest.raises(UserError, match=r"d\.jsonl, line 2: ") as caught:
        list(read_decisions(path))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b'{"v": 1}'), gzip.compress(b'{"v": 1}') + b"\n", b"\x00\x01\n", b"\x00", b"[" * 10**5 + b"\n",
     b'{"v":' * 10**5 + b"\n", b"5\n", b"null\n", b"\n"],
    ids=range(9),
)  # fmt: skip
def test_files_that_are_no_log_are_named(tmp_path, content):
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"d\.jsonl, line 1: not a decision"):
        list(read_decisions(path))


def test_fit_table_by_hand():
    # k=1: 2 tokens over 1.1; k=2: 2 tokens over 1.2 -> 1 wins at batch 1. At batch 2 only k=2 is known.
    rows = [row(1, (1,), (2,), 1.1)] * 3 + [row(2, (2,), (2,), 1.2)] * 3 + [row(2, (2, 2), (1, 1), 1.2)] * 3
    table = fit_table(rows, min_steps=3)
    assert table.lengths == {"answer": {1: 1, 2: 2}, "reasoning": {1: 1, 2: 2}}
    with pytest.raises(UserError, match="log longer"):
        fit_table(rows, min_steps=4)
    with pytest.raises(UserError, match="no decisions"):
        fit_table([])
    with pytest.raises(UserError, match="k_max"):
        fit_table([row(), row(k_max=4)])


def test_table_fitted_from_long_drafts_and_costs_beats_every_static_length():
    workload, rows = CHANGING[1], []
    simulate(Static(workload.k_max, workload.k_max), workload, 3000, seed=100, log=rows.append)
    table = fit_table(rows, workload.costs)
    assert table.lengths["reasoning"][1] == workload.k_max and table.lengths["answer"][1] == 0
    for seed in range(5):
        mine = simulate(TablePolicy(workload.k_max, table), workload, 1500, seed).goodput
        assert mine > max(run.goodput for run in static_sweep(workload, 1500, seed).values())


def test_table_fitted_from_an_exploring_log_needs_no_costs():
    workload, rows = CHANGING[1], []
    policy = make_policy("ucb", workload.k_max, {"width": 2.0}, None)
    simulate(policy, workload, 6000, seed=100, log=rows.append)
    table = fit_table(rows)
    assert table.lengths["reasoning"][1] >= 3 and table.lengths["answer"][1] <= 1


def test_timings_pair_a_step_with_the_next_decision():
    rows = [
        row(2, (2, 2), (3, 1), drafted=(2, 1), seconds=0.5),
        row(1, (1, 1), (1, 1), step=1),
        row(step=5, seconds=1.0),
    ]
    assert timings(rows) == [Timing(tokens=5, rounds=1, batch=2, seconds=0.5)]


def test_costs_are_found_from_a_log_with_times():
    workload, rows = CHANGING[3], []
    simulate(make_policy("ucb", workload.k_max), workload, 1500, seed=0, log=rows.append)
    costs, timed = workload.costs, []
    for this, following in zip(rows, rows[1:], strict=False):
        seconds = costs.verify(len(this.asked) + sum(this.asked)) + costs.draft(
            max(following.asked), len(following.asked)
        )
        timed.append(Decision(**(vars(this) | {"seconds": seconds})))
    found = fit_costs(timings([*timed, rows[-1]]))
    for batch, k in ((1, 0), (1, 4), (24, 1)):
        assert found.step(batch, k) == pytest.approx(costs.step(batch, k), rel=1e-3)
