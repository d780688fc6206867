import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from serve.speculation.costs import CostModel, Timing, fit_costs


def test_costs_by_hand():
    costs = CostModel(fixed=1.0, per_token=0.1, free_tokens=8, draft_fixed=0.2, draft_per_sequence=0.01)
    assert costs.verify(8) == 1.0
    assert costs.verify(12) == pytest.approx(1.4)
    assert costs.draft(3, 4) == pytest.approx(0.72)
    assert costs.step(4, 2) == pytest.approx(0.48 + 1.4)  # 12 tokens
    assert costs.step(4, 0) == 1.0


@pytest.mark.parametrize(
    ("config", "text"), [({"fixd": 1}, "fixed"), ({"fixed": 0}, "above 0"), ({"per_token": -1}, "negative")]
)
def test_bad_costs(config, text):
    with pytest.raises(UserError, match=text):
        CostModel.from_config(config)


@given(
    st.floats(0.5, 2), st.floats(0.01, 0.2), st.sampled_from([0, 8, 16]), st.floats(0.01, 0.3), st.floats(0.001, 0.05)
)
def test_fit_finds_the_costs_that_made_the_times(fixed, per_token, free, draft, per_sequence):
    made = CostModel(fixed, per_token, free, draft, per_sequence)
    rows = [
        Timing(batch * (1 + before), k, batch, made.verify(batch * (1 + before)) + made.draft(k, batch))
        for batch in (1, 2, 4, 8, 16)
        for before in (0, 1, 3)
        for k in (0, 1, 3)
    ]
    found = fit_costs(rows)
    for row in rows:
        assert found.verify(row.tokens) + found.draft(row.rounds, row.batch) == pytest.approx(row.seconds, rel=1e-6)


def test_fit_needs_different_lengths():
    with pytest.raises(UserError, match="two or more draft lengths"):
        fit_costs([Timing(4, 2, 1, 1.0)] * 20)
