"""Every problem issued is in exactly one place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.loop.ledger import NEXT, Ledger, State


def test_the_life_of_an_issue():
    ledger = Ledger()
    issues = [ledger.issue(name, 0) for name in "abcd"]
    assert issues == ["0/a", "0/b", "0/c", "0/d"]
    for issue in issues[:3]:
        ledger.move(issue, State.SCORED)
    ledger.move(issues[0], State.TRAINED, "7")
    ledger.move(issues[1], State.DROPPED, "all_wrong")
    assert ledger.counts() == {"issued": 1, "scored": 1, "dropped": 1, "trained": 1}
    assert ledger.dropped_by_reason() == {"all_wrong": 1}
    assert ledger.unfinished() == ["0/c", "0/d"]
    assert ledger.take_back_unfinished() == [("c", 0), ("d", 0)]
    assert ledger.counts() == {"issued": 0, "scored": 0, "dropped": 1, "trained": 1}
    assert ledger.issue("c", 0) == "0/c"


def test_digest_knows_which_problems_were_issued_and_not_what_became_of_them():
    one, two, other = Ledger(), Ledger(), Ledger()
    for ledger, names in ((one, "ab"), (two, "ba"), (other, "ac")):
        for name in names:
            ledger.issue(name, 0)
    one.move("0/a", State.SCORED)
    assert one.digest() == two.digest() != other.digest()


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("then", State)
def test_only_the_next_states_are_taken(state, then):
    ledger = Ledger.from_state([["p", 3, state.value, ""]])
    if then in NEXT[state]:
        ledger.move("3/p", then)
        assert ledger.counts()[then.value] == 1
    else:
        with pytest.raises(ValueError, match=f"3/p cannot go from {state} to {then}"):
            ledger.move("3/p", then)
        assert ledger.counts()[state.value] == 1


def test_an_epoch_issues_a_problem_once():
    ledger = Ledger()
    ledger.issue("p", 0)
    ledger.issue("p", 1)
    with pytest.raises(ValueError, match="p was already issued in epoch 0"):
        ledger.issue("p", 0)
    with pytest.raises(ValueError, match="5/p is not in the ledger"):
        ledger.move("5/p", State.SCORED)


moves = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from(State)), max_size=40)


@given(moves)
def test_no_issue_is_lost_or_doubled(moves):
    ledger, issued = Ledger(), set()
    for name, epoch, state in moves:
        key = f"{epoch}/p{name}"
        if key not in issued:
            ledger.issue(f"p{name}", epoch)
            issued.add(key)
        elif state in NEXT[ledger.entries[key].state]:
            ledger.move(key, state, "why")
    assert sum(ledger.counts().values()) == len(issued)
    saved = json.loads(json.dumps(ledger.to_state()))
    copy = Ledger.from_state(saved)
    assert copy == ledger
    back = {f"{epoch}/{name}" for name, epoch in copy.take_back_unfinished()}
    assert back | set(copy.entries) == issued and not back & set(copy.entries)
    assert back == set(ledger.unfinished())
