import pytest

from pipeline.config import UserError
from serve.speculation.build import make_policy
from serve.speculation.costs import CostModel
from serve.speculation.fixed import Static
from serve.speculation.simulator import simulate, static_sweep
from serve.speculation.workloads import CHANGING, STATIONARY, Segment, Workload


def certain(rate, **keys):
    return Workload("certain", (Segment(10, (rate,), **keys),), CostModel(draft_fixed=0.1), k_max=4)


def test_certain_drafts_by_hand():
    run = simulate(Static(4, 3), certain(1.0), 40, seed=0)
    assert (run.tokens, run.lengths[3]) == (40, 10)
    assert run.cost == pytest.approx(10 * 1.3) and run.goodput == pytest.approx(4 / 1.3)
    run = simulate(Static(4, 3), certain(0.0), 40, seed=0)
    assert run.goodput == pytest.approx(1 / 1.3)


def test_caps_bound_each_request_and_the_bill():
    workload = certain(1.0, batch=3, caps=(0, 1, 2))
    rows = []
    simulate(Static(4, 4), workload, 5, seed=0, log=rows.append)
    # the longest cap is 2, so the order is 2; asked 0, 1, 2 -> emitted 1, 2, 3; rounds 2
    assert {(row.k, row.asked, row.emitted) for row in rows} == {(2, (0, 1, 2), (1, 2, 3))}
    assert rows[0].cost == pytest.approx(1.2)


def test_longer_drafts_never_emit_less_on_the_same_luck():
    sweep = static_sweep(STATIONARY[2], 300, seed=3)
    steps = [sum(run.lengths.values()) for run in sweep.values()]
    assert steps == sorted(steps, reverse=True) and steps[0] == 300


def test_runs_are_repeatable_and_seeds_differ():
    def goodput(seed):
        workload = CHANGING[0]
        return simulate(make_policy("thompson", 6, {"seed": 1}, workload.costs), workload, 500, seed).goodput

    assert goodput(0) == goodput(0) != goodput(1)


def test_drift_and_order_of_segments():
    workload = Workload("w", (Segment(10, (1.0,), (0.0, 0.5), batch=2), Segment(5, (0.3,), phase="reasoning")), k_max=2)
    assert workload.at(0)[0].rates(0, 2) == [1.0, 1.0]
    assert workload.at(5)[0].rates(5, 2) == pytest.approx([0.5, 0.75])
    assert workload.at(12.5)[0].phase == "reasoning" and workload.at(15)[0].batch == 2
    assert workload.widest == 2


def test_outcomes_come_one_decision_late():
    events = []

    class Spy(Static):
        def decide(self, state):
            events.append("decide")
            return super().decide(state)

        def observe(self, *args, **keys):
            events.append("observe")
            super().observe(*args, **keys)

    simulate(Spy(4, 0), certain(0.0), 3, seed=0)
    assert events == ["decide", "decide", "observe", "decide", "observe", "observe"]


@pytest.mark.parametrize("keys", [{"tokens": 0}, {"start": ()}, {"start": (1.5,)}, {"batch": 2, "caps": (1,)}])
def test_bad_segments(keys):
    with pytest.raises(UserError):
        Segment(**({"tokens": 1, "start": (0.5,)} | keys))
