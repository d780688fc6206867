import pytest

from pipeline.config import UserError
from serve.speculation.controller import Controller, Live, Verified
from serve.speculation.costs import CostModel
from serve.speculation.fixed import Static
from serve.speculation.logs import DecisionLog, read_decisions
from serve.speculation.settings import KEY, Settings, cap_of, engine_options, tiers

COSTS = CostModel(per_token=0.1, draft_fixed=0.2)


def test_state_of_an_order():
    control = Controller(Static(4, 3), COSTS)
    order = control.order([Live("reasoning", 2), Live("reasoning", 1), Live("answer", 0)])
    assert (order.k, order.state.batch, order.state.phase, order.state.cap) == (2, 3, "reasoning", 2)
    assert [order.allowed(cap) for cap in (None, 0, 1, 9)] == [2, 0, 1, 2]
    assert control.order([]).state.batch == 1
    assert control.order([Live(), Live(cap=1)]).state.cap is None


def test_cut_counts_what_it_takes_away():
    control = Controller(Static(4, 2), COSTS)
    assert control.cut(control.order([Live()]), [[1, 2, 3], [4], [5, 6]], [None, None, 0]) == [[1, 2], [4], []]
    assert control.counters["cut"] == 3


def test_settle_charges_drafting_and_verifying_to_the_order_that_drafted(tmp_path):
    log = DecisionLog(tmp_path / "d.jsonl")
    control = Controller(Static(4, 3), COSTS, log)
    first = control.order([Live(), Live()])
    control.order([Live()])  # made before the first is settled, as in an engine
    control.settle(first, [Verified(4, 3), Verified(1, 1, cap=2)], seconds=0.25)
    (row,) = read_decisions(tmp_path / "d.jsonl")
    assert (row.step, row.k, row.asked, row.emitted, row.drafted) == (1, 3, (3, 2), (4, 1), (3, 1))
    assert row.cost == pytest.approx(3 * 0.2 + 1 + 0.1 * 6) and row.seconds == 0.25
    assert control.policy.counters["tokens"] == 5
    assert control.recent.value == pytest.approx(3 / 4)
    assert (control.counters["drafted"], control.counters["accepted"]) == (4, 3)
    control.settle(first, [])
    assert control.counters["settled"] == 1


def test_a_full_disk_is_counted_and_serving_goes_on():
    class Full:
        def write(self, row):
            raise OSError("no space")

    control = Controller(Static(4, 1), COSTS, Full())
    for _ in range(2):
        control.settle(control.order([Live()]), [Verified(1, 1)])
    assert control.counters["log_errors"] == 1 and control.counters["settled"] == 2


def test_engine_options_by_hand():
    options = engine_options(Settings("ucb", log="d.jsonl"), {"method": "ngram", "num_speculative_tokens": 2})
    assert options["speculative_config"]["num_speculative_tokens_per_batch_size"] == [
        [1, 1, 2],
        [2, 2, 1],
        [3, 1 << 20, 0],
    ]
    assert options["scheduler_cls"].endswith("AdaptiveScheduler")
    assert Settings.from_config(options["additional_config"][KEY]) == Settings("ucb", log="d.jsonl")
    assert {k for _, _, k in tiers(5)} == set(range(6))


@pytest.mark.parametrize(
    ("settings", "speculative", "text"),
    [
        (Settings(), {"method": "suffix", "num_speculative_tokens": 2}, "suffix"),
        (Settings(), {"method": "ngram"}, "num_speculative_tokens"),
        (Settings("gooput"), {"method": "ngram", "num_speculative_tokens": 2}, "goodput"),
        (Settings(costs={"draft": 1}), {"method": "ngram", "num_speculative_tokens": 2}, "draft_fixed"),
    ],
)
def test_options_that_cannot_work_are_refused_before_the_engine_starts(settings, speculative, text):
    with pytest.raises(UserError, match=text):
        engine_options(settings, speculative)


def test_memory_is_kept_between_engines(tmp_path):
    settings = Settings("thompson", memory=str(tmp_path / "m.json"))
    control = settings.controller(3)
    control.settle(control.order([Live()]), [Verified(1, 0)])
    settings.save(control)
    assert settings.controller(3).policy.counters["observed"] == 1
    with pytest.raises(UserError, match="k_max"):
        settings.controller(4)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, (None, True)),
        (0, (0, True)),
        (3, (3, True)),
        (-1, (None, False)),
        ("2", (None, False)),
        (True, (None, False)),
    ],
)
def test_cap_of_a_request(value, want):
    assert cap_of({"max_draft_tokens": value}) == want
    assert cap_of(None) == (None, True)
