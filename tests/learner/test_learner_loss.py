"""The loss: values worked out by hand, and masked places that hold poison."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.learner.loss import SUMS, ppo_clip_loss, summarise, token_logprobs

CLIPS = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0, "importance_cap": 2.0}


def run(new, old, behaviour, advantages, mask=None, tokens=None, **changes):
    values = [torch.tensor(column, dtype=torch.float32) for column in (new, old, behaviour, advantages)]
    values[0].requires_grad_()
    flags = torch.tensor(mask if mask is not None else [True] * len(new), dtype=torch.bool)
    count = int(flags.sum()) if tokens is None else tokens
    loss, metrics = ppo_clip_loss(*values, flags, count, **(CLIPS | changes))
    loss.backward()
    return loss.item(), values[0].grad, {name: float(value) for name, value in metrics.items()}


def test_ratio_one_is_the_plain_policy_gradient():
    loss, grad, metrics = run([-1.0, -2.0], [-1.0, -2.0], [-1.0, -2.0], [0.5, -1.5])
    assert loss == pytest.approx(-(0.5 - 1.5) / 2)
    assert grad.tolist() == pytest.approx([-0.25, 0.75])
    assert metrics["clipped"] == 0 and metrics["neg_logprob"] == 3.0


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "objective", "moves"),
    [
        (math.log(1.5), 2.0, 1.2 * 2, False),  # good token already pushed past 1 + high
        (math.log(0.5), 2.0, 0.5 * 2, True),
        (math.log(1.1), 2.0, 1.1 * 2, True),
        (math.log(0.5), -2.0, 0.8 * -2, False),  # bad token already pushed past 1 - low
        (math.log(1.5), -2.0, 1.5 * -2, True),
        (math.log(5.0), -2.0, 3.0 * -2, False),  # the dual clip bounds it at 3 A
        (math.log(5.0), 2.0, 1.2 * 2, False),  # and leaves good tokens alone
        (50.0, -2.0, 3.0 * -2, False),
        (200.0, 2.0, 1.2 * 2, False),  # exp(200) overflows float32
    ],
)
def test_clip_and_dual_clip(log_ratio, advantage, objective, moves):
    loss, grad, metrics = run([-1.0 + log_ratio], [-1.0], [-1.0], [advantage])
    assert loss == pytest.approx(-objective, rel=1e-5)
    assert math.isfinite(grad.item()) and (grad.item() != 0) == moves
    assert metrics["clipped"] == (0 if moves else 1)


def test_uneven_clip_bounds():
    up, _, _ = run([math.log(1.5)], [0.0], [0.0], [1.0], clip_low=0.1, clip_high=0.3)
    down, _, _ = run([math.log(0.5)], [0.0], [0.0], [-1.0], clip_low=0.1, clip_high=0.3)
    assert (up, down) == (pytest.approx(-1.3), pytest.approx(0.9))


def test_importance_weight_is_truncated_and_carries_no_gradient():
    loss, grad, metrics = run([-1.0, -1.0], [-1.0, -1.0], [-1.0 - math.log(1.5), -6.0], [1.0, 1.0])
    assert loss == pytest.approx(-(1.5 + 2.0) / 2)
    assert grad.tolist() == pytest.approx([-0.75, -1.0])
    assert metrics["capped"] == 1 and metrics["importance"] == pytest.approx(3.5)
    assert metrics["parity_abs"] == pytest.approx(math.log(1.5) + 5) and metrics["parity_abs_max"] == 5.0


def test_denominator_counts_unmasked_tokens_of_the_whole_batch():
    loss, grad, metrics = run([0.0] * 4, [0.0] * 4, [0.0] * 4, [3.0, 5.0, 7.0, 9.0], [True, False, False, False])
    assert loss == -3.0 and grad.tolist() == [-3.0, 0, 0, 0] and metrics["tokens"] == 1
    spread, _, _ = run([0.0], [0.0], [0.0], [3.0], tokens=12)
    assert spread == -0.25


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_poison_at_masked_places_changes_nothing(dtype):
    clean = torch.tensor([[-1.0, -1.2, -0.7, -2.0], [-1.1, -1.0, -1.3, -0.9], [-1.0, -1.1, -0.8, -1.9], [1, -1, 2, -2]])
    mask = torch.tensor([True, False, False, False])
    results = []
    for poison in (None, (150.0, -math.inf, math.nan)):
        rows = [row.clone().to(dtype) for row in clean]
        for row in rows if poison else ():
            row[1:] = torch.tensor(poison, dtype=dtype)
        rows[0].requires_grad_()
        with torch.autograd.set_detect_anomaly(True):
            loss, metrics = ppo_clip_loss(*rows, mask, 1, **CLIPS)
            loss.backward()
        results.append((loss.item(), rows[0].grad.tolist(), {k: v.item() for k, v in metrics.items()}))
    assert results[0] == results[1]
    assert all(math.isfinite(value) for value in [results[1][0], *results[1][1], *results[1][2].values()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("column", range(4))
def test_a_log_ratio_that_overflows_at_a_masked_place_changes_nothing(dtype, column):
    """New, old, behaviour or advantage alone: log-ratios of 150, infinity and NaN."""
    mask = torch.tensor([True, False, False, False])
    results = []
    for poison in (0.0, torch.tensor([150.0, -math.inf, math.nan])):
        rows = [torch.full((4,), value).to(dtype) for value in (-1.0, -1.2, -1.1, 0.5)]
        rows[column][1:] = poison if isinstance(poison, float) else poison.to(dtype)
        rows[0].requires_grad_()
        with torch.autograd.set_detect_anomaly(True):
            loss, metrics = ppo_clip_loss(*rows, mask, 1, **CLIPS)
            loss.backward()
        results.append((loss.item(), rows[0].grad.tolist(), {k: v.item() for k, v in metrics.items()}))
    assert results[0] == results[1] and all(map(math.isfinite, [results[1][0], *results[1][1]]))


def test_three_of_four_rows_masked_whole_leave_the_denominator_of_the_fourth():
    loss, grad, metrics = run([-1.0] * 8, [-1.0] * 8, [-1.0] * 8, [2.0] * 8, [True] * 2 + [False] * 6)
    assert loss == -2.0 and grad.tolist() == [-1.0] * 2 + [0.0] * 6 and metrics["tokens"] == 2


def test_a_token_that_was_not_drawn_here_has_weight_one_or_its_given_probability():
    """Drawn, of unknown probability, put there with probability a half, and one that is masked."""
    new = torch.tensor([-1.0, -2.0, -0.5, -1.0], requires_grad=True)
    behaviour = torch.tensor([-1.25, math.nan, math.log(0.5), math.nan])
    advantages = torch.tensor([1.0, 2.0, -1.0, 5.0])
    mask, drawn = torch.tensor([True, True, True, False]), torch.tensor([True, False, False, True])
    with torch.autograd.set_detect_anomaly(True):
        loss, metrics = ppo_clip_loss(new, new.detach(), behaviour, advantages, mask, 3, **CLIPS, drawn=drawn)
        loss.backward()
    weights = [math.exp(0.25), 1.0, math.exp(-0.5) / 0.5]
    assert loss.item() == pytest.approx(-(weights[0] * 1 + 2 - weights[2]) / 3)
    assert new.grad.tolist() == pytest.approx([-weights[0] / 3, -2 / 3, weights[2] / 3, 0])
    found = summarise({name: value.item() for name, value in metrics.items()})
    assert found["tokens"] == 3 and found["importance_mean"] == pytest.approx(sum(weights) / 3)
    assert found["parity_mean"] == found["parity_max"] == pytest.approx(0.25)  # of the drawn one alone
    assert found["entropy"] == pytest.approx(1.0)


def test_a_drawn_token_without_a_probability_is_not_passed_over():
    loss, _, _ = run([-1.0], [-1.0], [math.nan], [1.0])
    assert math.isnan(loss)


def test_fully_masked_and_empty_calls_give_zero():
    loss, grad, metrics = run([math.nan, 1.0], [0.0, 0.0], [0.0, math.inf], [1.0, math.nan], [False, False])
    assert loss == 0 and grad.tolist() == [0, 0] and set(metrics.values()) == {0.0}
    loss, grad, metrics = run([], [], [], [], [])
    assert loss == 0 and grad.shape == (0,) and set(metrics.values()) == {0.0}
    assert all(math.isfinite(value) for value in summarise(metrics).values())


def test_summaries_are_means_a_token():
    sums = {
        "tokens": 4.0,
        "drawn": 2.0,
        "parity_abs": 1.0,
        "parity_abs_max": 1.5,
        "clipped": 1.0,
        "capped": 2.0,
        "importance": 5.0,
        "neg_logprob": 4.0,
    }
    assert set(SUMS) < set(sums)
    assert summarise(sums) == {
        "tokens": 4.0,
        "parity_mean": 0.5,
        "parity_max": 1.5,
        "clip_fraction": 0.25,
        "capped_fraction": 0.5,
        "importance_mean": 1.25,
        "entropy": 2.0,
    }


def test_token_logprobs_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)], [2.0, 2.0]])
    assert token_logprobs(logits, torch.tensor([1, 0]), 1.0).tolist() == pytest.approx([math.log(0.75), math.log(0.5)])
    halved = token_logprobs(logits, torch.tensor([1, 0]), 0.5)
    assert halved.tolist() == pytest.approx([math.log(0.9), math.log(0.5)])
    assert token_logprobs(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), 1.0).shape == (0,)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.floats(-3, 3), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 7),
)
def test_splitting_a_batch_leaves_the_loss_alone(tokens, cut):
    new, old, advantage, mask = map(list, zip(*tokens, strict=True))
    whole, grad, sums = run(new, old, old, advantage, mask, tokens=9)
    parts = [run(new[s], old[s], old[s], advantage[s], mask[s], tokens=9) for s in (slice(cut), slice(cut, None))]
    assert parts[0][0] + parts[1][0] == pytest.approx(whole, abs=1e-5)
    assert torch.cat([parts[0][1], parts[1][1]]).tolist() == pytest.approx(grad.tolist(), abs=1e-6)
    assert parts[0][2]["parity_abs"] + parts[1][2]["parity_abs"] == pytest.approx(sums["parity_abs"], abs=1e-5)
