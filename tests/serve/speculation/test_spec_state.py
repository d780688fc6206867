import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from serve.speculation.state import RecentAcceptance, State, asked_for, bucket, examined, longest_cap


def test_limit_and_context():
    assert State(5, "reasoning", cap=2, k_max=4).limit == 2
    assert State(5, cap=9, k_max=4).limit == State(5, k_max=4).limit == 4
    assert State(5, "reasoning").context == "reasoning:4"


@pytest.mark.parametrize("keys", [{"batch": 0}, {"batch": 1, "cap": -1}, {"batch": 1, "phase": "anser"}])
def test_bad_states_are_refused(keys):
    with pytest.raises(UserError):
        State(**keys)


@given(st.integers(1, 10**6))
def test_bucket_is_the_power_of_two_at_or_below(batch):
    found = bucket(batch)
    assert found & (found - 1) == 0 and found <= batch < 2 * found


def test_caps():
    assert asked_for(3, (None, 0, 2, 9)) == (3, 0, 2, 3)
    assert longest_cap((1, 4)) == 4
    assert longest_cap((1, None)) is None and longest_cap(()) is None


@pytest.mark.parametrize(
    ("asked", "emitted", "want"),
    [(0, 1, (0, 0)), (3, 1, (0, 1)), (3, 3, (2, 3)), (3, 4, (3, 3))],
)
def test_examined_stops_at_the_first_rejection(asked, emitted, want):
    assert examined(asked, emitted) == want


def test_recent_acceptance_by_hand():
    recent = RecentAcceptance(half_life=1.0)
    assert recent.value is None
    recent.update([0], [1])
    assert recent.value is None
    recent.update([3, 3], [4, 1])  # 3 of 3, then 0 of 1
    assert recent.value == 3 / 4
    recent.update([2], [3])  # 2 of 2 with the old halved
    assert recent.value == (1.5 + 2) / (2 + 2)
