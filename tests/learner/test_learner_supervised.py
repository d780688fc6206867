"""The schedule of supervised teaching: rates, and how many tokens have been taught."""

import pytest

from pipeline.config import WarmStart
from pipeline.learner.supervised import rate_at, tokens_until

PLAN = WarmStart(steps=10, plain_steps=6, plain_tokens_per_step=2, tokens_per_step=5, warmup_steps=2, lr=1.0)


@pytest.mark.parametrize(("step", "tokens"), [(0, 2), (5, 12), (6, 17), (9, 32)])
def test_tokens_until(step, tokens):
    assert tokens_until(step, PLAN) == tokens


def test_the_rate_warms_up_falls_and_starts_again_with_the_second_phase():
    rates = [rate_at(step, PLAN) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0] and rates[2] > rates[3] > rates[5]
    assert rates[6] == PLAN.overthink_lr and rates[6] > rates[9] > PLAN.overthink_lr * PLAN.lr_floor
