import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency

from pipeline.config import UserError
from serve.speculation.exactness import Difference, compare_samples, compare_to_law, first_difference, upper_tail


def test_first_difference():
    assert first_difference({"a": [1, 2]}, {"a": (1, 2)}) is None
    assert first_difference({"a": [1, 2], "b": [3]}, {"a": [1, 2], "b": [4]}) == Difference("b", 0, 3, 4)
    assert first_difference({"a": [1, 2]}, {"a": [1]}) == Difference("a", 1, 2, None)
    for pair in (({}, {}), ({"a": [1]}, {"b": [1]})):
        with pytest.raises(UserError):
            first_difference(*pair)


@given(st.floats(0, 300), st.integers(1, 120))
def test_tail_agrees_with_scipy(statistic, freedom):
    assert upper_tail(statistic, freedom) == pytest.approx(chi2.sf(statistic, freedom), rel=1e-8, abs=1e-13)


def test_two_samples_by_hand_and_against_scipy():
    a, b = ["x"] * 30 + ["y"] * 70, ["x"] * 50 + ["y"] * 50
    found = compare_samples(a, b)
    # pooled 0.4 and 0.6: 2 * (100/40 + 100/60) = 8.333
    assert found.statistic == pytest.approx(25 / 3) and found.freedom == 1
    assert found.p == pytest.approx(chi2_contingency([[30, 70], [50, 50]], correction=False).pvalue)


def test_one_sample_by_hand_with_rare_cells_joined():
    # expected 10, 8, 1.2, 0.8: the last two join, then (2) joins 8
    found = compare_to_law([0] * 12 + [1] * 8, {0: 0.5, 1: 0.4, 2: 0.06, 3: 0.04})
    assert found.freedom == 1 and found.statistic == pytest.approx(4 / 10 + 4 / 10)
    assert compare_to_law([5], {0: 1.0}).verdict() == "different"
    assert compare_to_law([0], {0: 1.0}).verdict() == "unknown"
    with pytest.raises(UserError):
        compare_to_law([0], {0: 0.5})


def test_false_alarms_are_as_rare_as_promised_and_real_changes_are_seen():
    rng = np.random.default_rng(0)
    law = {0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05}

    def draw(p, n=400):
        return rng.choice(4, n, p=p).tolist()

    true, wrong = list(law.values()), [0.35, 0.45, 0.15, 0.05]
    alarms = [compare_to_law(draw(true), law).p < 0.05 for _ in range(400)]
    assert 0.02 <= np.mean(alarms) <= 0.09
    alarms = [compare_samples(draw(true), draw(true)).p < 0.05 for _ in range(400)]
    assert 0.02 <= np.mean(alarms) <= 0.09
    assert all(compare_to_law(draw(wrong), law).verdict() == "different" for _ in range(20))
    assert compare_samples(draw(true, 2000), draw(wrong, 2000)).verdict() == "different"


def test_rejection_sampling_keeps_the_law_and_a_broken_one_does_not():
    """Speculative sampling of one position: draft from q, accept with min(1, p/q), else draw from (p - q)+."""
    rng, p, q = np.random.default_rng(1), np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    rest = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()

    def speculate(after_rejection):
        draft = rng.choice(3, p=q)
        return int(draft) if rng.random() < min(1, p[draft] / q[draft]) else int(rng.choice(3, p=after_rejection))

    law = dict(enumerate(p))
    assert compare_to_law([speculate(rest) for _ in range(4000)], law).verdict() == "same"
    assert compare_to_law([speculate(p) for _ in range(4000)], law).verdict() == "different"
