import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import UserError
from serve.speculation.build import POLICIES, make_policy
from serve.speculation.costs import CostModel
from serve.speculation.fixed import Static, Table, TablePolicy
from serve.speculation.goodput import Goodput, best_length
from serve.speculation.learned import LearnedDepth, features
from serve.speculation.simulator import simulate
from serve.speculation.state import State, asked_for, longest_cap
from serve.speculation.ucb import UCB
from serve.speculation.workloads import CHANGING

COSTS = CostModel(draft_fixed=0.1)
TABLE = Table(3, {"reasoning": {1: 3, 8: 1}, "answer": {1: 2, 4: 0}})


def policy(name, k_max=3, seed=0, dwell=1):
    options = {"seed": seed, "dwell": dwell} | {"static": {"k": 2}, "table": {"table": TABLE}}.get(name, {})
    return make_policy(name, k_max, options, COSTS)


steps = st.lists(
    st.tuples(
        st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=5),
        st.sampled_from(["reasoning", "answer"]),
        st.lists(st.integers(0, 3), min_size=5, max_size=5),
    ),
    min_size=1,
    max_size=40,
)


def drive(chosen, script):
    """The lengths that a policy chooses over a script of (caps, phase, acceptable tokens)."""
    found = []
    for caps, phase, acceptable in script:
        state = State(len(caps), phase, 0.5, longest_cap(caps), 3)
        k = chosen.decide(state)
        asked = asked_for(k, caps)
        emitted = [1 + min(a, want) for a, want in zip(acceptable, asked, strict=False)]
        chosen.observe(k, emitted, COSTS.step(len(caps), k), state, asked)
        found.append((k, state.limit))
    return found


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25)
@given(script=steps, seed=st.integers(0, 5))
def test_lengths_obey_caps_are_repeatable_and_survive_saving(name, script, seed):
    first, second = policy(name, seed=seed), policy(name, seed=seed)
    found = drive(first, script)
    assert all(0 <= k <= limit for k, limit in found)
    assert drive(second, script) == found
    resumed = policy(name, seed=seed + 1)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert resumed.counters == first.counters
    assert drive(resumed, script) == drive(first, script)


@pytest.mark.parametrize("name", POLICIES)
def test_books_of_a_policy_match_the_clock(name):
    workload = CHANGING[3]
    options = {"static": {"k": 1}, "table": {"table": Table(6, {"reasoning": {1: 1}, "answer": {1: 1}})}}.get(name, {})
    chosen = make_policy(name, workload.k_max, options, workload.costs)
    run = simulate(chosen, workload, 400, seed=1)
    assert chosen.counters["tokens"] == run.tokens
    assert chosen.counters["cost"] == pytest.approx(run.cost)
    assert chosen.counters["decisions"] == chosen.counters["observed"] == sum(run.lengths.values())
    assert chosen.counters["off"] == run.lengths[0]
    if "predicted_cost" in chosen.counters:
        assert chosen.counters["predicted_cost"] == pytest.approx(run.cost)


def test_best_length_by_hand():
    # 0.8 each: 1, 1.8, 2.44, 2.952 tokens over 1, 1.3, 1.6, 1.9 -> 1, 1.385, 1.525, 1.554
    best, values = best_length([0.8] * 3, State(1, k_max=3), CostModel(draft_fixed=0.3))
    assert best == 3 and values == pytest.approx([1, 1.8 / 1.3, 2.44 / 1.6, 2.952 / 1.9])
    assert best_length([0.8] * 3, State(1, k_max=3), CostModel(draft_fixed=0.8))[0] == 0  # 1.8 / 1.8 is a tie: off
    assert best_length([0.8] * 3, State(1, cap=1, k_max=3), CostModel(draft_fixed=0.3))[0] == 1


def test_dwell_holds_a_length_until_the_context_or_a_cap_intervenes():
    chosen = policy("table", dwell=3)
    got = [chosen.decide(State(batch, phase, cap=cap, k_max=3)) for batch, phase, cap in (
        (7, "reasoning", None), (8, "reasoning", None), (8, "reasoning", 0), (8, "reasoning", None),
        (8, "reasoning", None), (8, "reasoning", None),
    )]  # fmt: skip
    assert got == [3, 1, 0, 0, 0, 1]
    assert chosen.counters["switches"] == 3


def test_goodput_probes_one_above_its_best_when_off():
    chosen = Goodput(3, COSTS, probe_every=10)
    state, seen = State(1, k_max=3), []
    for _ in range(200):
        k = chosen.decide(state)
        chosen.observe(k, [1], COSTS.step(1, k), state)
        seen.append(k)
    assert set(seen[40:]) == {0, 1} and sum(seen[40:]) == pytest.approx(16, abs=1)
    assert chosen.counters["probes"] >= 16


def test_ucb_first_tries_every_length_from_the_longest():
    chosen, state = UCB(3), State(1, k_max=3)
    first = []
    for _ in range(4):
        first.append(chosen.decide(state))
        chosen.observe(first[-1], [1], 1.0, state)
    assert first == [3, 2, 1, 0]


def test_learned_features_by_hand():
    state = State(4, "reasoning", acceptance=0.5, k_max=4)
    assert features(state, 1) == pytest.approx([1, 0.25, 2 * -0.693147, 0.0, 0.5, -1.0], abs=1e-6)


def test_learned_depth_keeps_a_floor_under_both_actions():
    chosen = LearnedDepth(3, COSTS, floor=0.05)
    for weight in (-8.0, 8.0):
        chosen.weights[:] = weight
        assert 0.05 <= chosen.go_on(State(1, k_max=3), 0) <= 0.95


def test_tables(tmp_path):
    assert [TABLE.length("answer", batch) for batch in (1, 3, 4, 100)] == [2, 2, 0, 0]
    assert Table(3, {"reasoning": {4: 1}, "answer": {4: 1}}).length("answer", 1) == 1
    assert TABLE.as_ranges("reasoning") == [[1, 7, 3], [8, 1 << 20, 1]]
    TABLE.save(tmp_path / "t.json")
    assert Table.load(tmp_path / "t.json") == TABLE
    assert TablePolicy(3, str(tmp_path / "t.json")).decide(State(9, "reasoning", k_max=3)) == 1


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ({"reasoning": {1: 1}}, "answer is missing"),
        ({"reasoning": {3: 1}, "answer": {1: 1}}, "powers of two"),
        ({"reasoning": {1: 4}, "answer": {1: 1}}, "0 ... 3"),
        ({"resoning": {1: 1}}, "reasoning"),
    ],
)
def test_bad_tables(lengths, text):
    with pytest.raises(UserError, match=text):
        Table(3, lengths)


def test_bad_table_files(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        Table.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"k_max": 3}')
    with pytest.raises(UserError, match="not a draft-length table"):
        Table.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("name", "options", "costs", "text"),
    [
        ("godput", {}, COSTS, "goodput"),
        ("goodput", {"probe": 1}, COSTS, "probe_every"),
        ("goodput", {}, None, "costs"),
        ("static", {}, None, "'k'"),
        ("static", {"k": 9}, None, "0 ... 3"),
        ("ucb", {"dwell": 0}, None, "dwell"),
    ],
)
def test_bad_policies(name, options, costs, text):
    with pytest.raises(UserError, match=text):
        make_policy(name, 3, options, costs)


def test_bad_calls():
    chosen = Static(3, 2)
    with pytest.raises(UserError, match="before any decide"):
        chosen.observe(2, [1], 1.0)
    with pytest.raises(UserError, match="k_max=3"):
        chosen.decide(State(1, k_max=4))
    chosen.decide(State(1, k_max=3))
    for emitted, cost, asked in (
        ([4], 1.0, None),
        ([0], 1.0, None),
        ([1], 0.0, None),
        ([1, 1], 1.0, [1]),
        ([1], 1.0, [3]),
    ):
        with pytest.raises(UserError):
            chosen.observe(2, emitted, cost, asked=asked)
    with pytest.raises(UserError, match="static"):
        policy("ucb").load_state_dict(chosen.state_dict())


def test_a_probe_is_judged_by_the_token_it_adds():
    """Two tokens are always right and the third never: after a probe at 3 the length is 2 until the next one."""
    policy = Goodput(4, CostModel(draft_fixed=0.1), probe_every=20)
    chosen = []
    for _ in range(80):
        k = policy.decide(State(batch=4, k_max=4))
        policy.observe(k, [1 + min(k, 2)] * 4, CostModel(draft_fixed=0.1).step(4, k))
        chosen.append(k)
    assert chosen[20:].count(2) >= 0.9 * len(chosen[20:]) and 3 in chosen[20:]
