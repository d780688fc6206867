import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.speculation.acceptance import AcceptanceEstimate, expected_tokens


def test_expected_tokens_by_hand():
    assert expected_tokens([0.5, 0.5, 0.0, 0.9]) == [1.0, 1.5, 1.75, 1.75, 1.75]
    assert expected_tokens([]) == [1.0]


def test_rates_by_hand():
    estimate = AcceptanceEstimate(3, first=0.5)
    estimate.update([2, 2], [3, 1])  # positions: 1 of 2, 1 of 1, nothing
    first = (1 + 2 * 0.5) / (2 + 2)
    second = (1 + 2 * first) / (1 + 2)
    assert estimate.rates() == pytest.approx([first, second, second])


def test_steps_without_drafts_teach_nothing():
    estimate = AcceptanceEstimate(3)
    before = estimate.state_dict()
    estimate.update([0, 0], [1, 1])
    assert estimate.state_dict() == before


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_stationary_rates_are_found(rate):
    rng, found = np.random.default_rng(0), []
    estimate = AcceptanceEstimate(2)
    for step in range(1500):
        hits = rng.random((4, 2)) < rate
        estimate.update([2] * 4, (1 + np.cumprod(hits, axis=1).sum(axis=1)).tolist())
        if step > 300:
            found.append(estimate.rates()[0])
    assert np.mean(found) == pytest.approx(rate, abs=0.05)


def test_a_change_is_noticed_within_a_few_steps():
    estimate = AcceptanceEstimate(1)
    for _ in range(300):
        estimate.update([1] * 4, [2, 2, 2, 1])
    before = estimate.changes
    for _ in range(10):
        estimate.update([1] * 4, [1] * 4)
    assert estimate.changes > before and estimate.rates()[0] < 0.25


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_rates_stay_probabilities_and_the_state_round_trips(steps):
    estimate = AcceptanceEstimate(3)
    for asked, accepted in steps:
        estimate.update([asked], [1 + min(asked, accepted)])
    assert all(0 <= rate <= 1 for rate in estimate.rates())
    other = AcceptanceEstimate(3)
    other.load_state_dict(json.loads(json.dumps(estimate.state_dict())))
    assert other.rates() == estimate.rates() and other.state_dict() == estimate.state_dict()
