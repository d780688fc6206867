from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.config import UserError
from serve.speculation.branches import BranchCache
from serve.speculation.ssd import BACKUPS, Saguaro, covered, emitted, fan_out, forecast, hit_rate, outcomes
from serve.speculation.ssd_simulator import simulate_ssd


def test_pieces_by_hand():
    assert outcomes(0.5, 2) == [0.5, 0.25, 0.25]
    assert emitted(0.5, 2) == 1.75
    setting = Saguaro(k=1, alpha=0.5, top=0.6, decay=1.0, branches=3)
    assert [covered(setting, f) for f in (0, 1, 2)] == pytest.approx([0, 0.6, 0.8])
    # both outcomes have chance 0.5: two branches on the first, one on the second
    assert fan_out(setting, 0.5, 1) == [2, 1]
    assert hit_rate(setting, 0.5, 1) == pytest.approx(0.5 * 0.8 + 0.5 * 0.6)


@settings(max_examples=30)
@given(st.floats(0, 0.95), st.integers(1, 3), st.integers(0, 7), st.floats(0, 0.9), st.floats(0.3, 2))
def test_fan_out_is_the_best_spread(alpha, k, branches, top, decay):
    assume(top >= (1 - top) * (1 - 2**-decay))
    setting = Saguaro(k=k, alpha=alpha, branches=branches, top=top, decay=decay)
    chances = outcomes(alpha, k)
    best = max(
        sum(c * covered(setting, f) for c, f in zip(chances, spread, strict=True))
        for spread in product(range(branches + 1), repeat=k + 1)
        if sum(spread) <= branches
    )
    assert hit_rate(setting, alpha, k) == pytest.approx(best)


def test_fan_out_becomes_geometric_and_is_capped():
    setting = Saguaro(k=3, alpha=0.25, branches=4000, decay=1.0, widest=10**6)
    spread = fan_out(setting, 0.25, 3)
    assert sum(spread) == 4000
    assert spread[1] / spread[0] == pytest.approx(0.5, abs=0.01)  # 0.25 ** (1 / 2)
    assert fan_out(Saguaro(k=2, branches=10**3, widest=5), 0.8, 2) == [5, 5, 5]


def test_forecast_by_hand():
    setting = Saguaro(k=1, alpha=0.5, draft_cost=0.2, branches=3, batch=2, top=0.6)
    hits = 0.7  # as above
    found = forecast(setting)
    assert found.hit_rate == pytest.approx(hits)
    assert found.ordinary == pytest.approx(1.5 / 1.2)
    assert found.goodput == pytest.approx(1.5 / (1 + (1 - hits**2) * 0.2))


@pytest.mark.parametrize("backup", BACKUPS)
@pytest.mark.parametrize("batch", [1, 6])
def test_forecast_agrees_with_the_simulation(backup, batch):
    for seed in range(20):
        setting = Saguaro(k=3, alpha=0.7, branches=8, batch=batch, backup=backup, draft_cost=0.1)
        want, run = forecast(setting), simulate_ssd(setting, 3000 // batch, seed)
        assert run.hit_rate == pytest.approx(want.hit_rate, abs=0.04)
        assert run.goodput == pytest.approx(want.goodput, rel=0.05)


def test_never_beyond_its_bound_and_without_cache_no_gain():
    for alpha, draft_cost in product((0.3, 0.6, 0.9), (0.01, 0.1, 0.3)):
        setting = Saguaro(alpha=alpha, draft_cost=draft_cost, k=4)
        # with every outcome prepared, drafting is hidden: at most the larger of both instead of their sum
        assert forecast(setting).gain <= (1 + 4 * draft_cost) / max(1, 4 * draft_cost) + 1e-9
        without = Saguaro(alpha=alpha, draft_cost=draft_cost, k=4, branches=0)
        assert forecast(without).gain <= 1 + 1e-9 and forecast(without).hit_rate == 0


def test_backup_goes_from_neural_to_fast_as_the_batch_grows():
    for batch, best in ((1, "neural"), (64, "fast")):
        found = {name: forecast(Saguaro(batch=batch, draft_cost=0.1, backup=name)).goodput for name in BACKUPS}
        assert max(found, key=found.get) == best


@pytest.mark.parametrize("keys", [{"backup": "slow"}, {"alpha": 1.0}, {"k": 0}, {"branches": -1}, {"top": 0.2}])
def test_bad_settings(keys):
    with pytest.raises(UserError):
        Saguaro(**keys)


def test_cache_by_hand():
    cache = BranchCache(capacity=2)
    cache.prepare("a", 5, {(0, 7): [1, 2], (1, 8): [3]})
    assert cache.take("a", 5, (1, 8)) == (3,)
    assert cache.take("a", 5, (0, 7)) is None  # only one outcome happens
    cache.prepare("a", 9, {(0, 7): [1]})
    assert cache.take("a", 8, (0, 7)) is None and cache.counters["stale"] == 1
    for name in "abc":
        cache.prepare(name, 0, {(0, 1): [1]})
    assert len(cache) == 2 and cache.counters["evicted"] == 1 and cache.take("a", 0, (0, 1)) is None
    cache.forget("b")
    assert cache.take("b", 0, (0, 1)) is None and cache.take("c", 0, (0, 1)) == (1,)
    assert cache.hit_rate == pytest.approx(2 / 6)


@given(
    st.lists(
        st.tuples(st.sampled_from(["prepare", "take", "forget"]), st.sampled_from("abc"), st.integers(0, 2)),
        max_size=60,
    )
)
def test_a_draft_is_only_returned_to_its_request_and_epoch(script):
    cache = BranchCache(capacity=2)
    for action, name, epoch in script:
        if action == "prepare":
            cache.prepare(name, epoch, {(j, t): (ord(name), epoch, j, t) for j in range(2) for t in range(2)})
        elif action == "forget":
            cache.forget(name)
        else:
            assert cache.take(name, epoch, (1, 0)) in (None, (ord(name), epoch, 1, 0))
