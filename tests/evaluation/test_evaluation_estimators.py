"""pass@k against every subset, AES against the published tables."""

import subprocess
import sys
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation import aes, pass_at_k
from pipeline.evaluation.estimators import interval

# Averages over seven benchmarks (accuracy in percent, tokens) and the printed score: arXiv 2509.25827, tables 1 and 2.
TABLES = {
    "DS-1.5B": [
        ("Base", 45.21, 9340, 0.00),
        ("GRPO", 49.15, 6814, 0.53),
        ("AdaptThink", 42.78, 5031, 0.19),
        ("ThinkPrune", 45.83, 3975, 0.62),
        ("TLMRE", 46.78, 5498, 0.52),
        ("LC-R1", 42.86, 5202, 0.18),
        ("DECS", 47.78, 4000, 0.74),
    ],
    "DS-7B": [
        ("Base", 61.57, 7857, 0.00),
        ("GRPO", 63.86, 6929, 0.23),
        ("AdaptThink", 60.93, 6199, 0.16),
        ("ThinkPrune", 62.17, 4940, 0.40),
        ("TLMRE", 61.16, 5142, 0.31),
        ("LC-R1", 60.32, 4823, 0.28),  # 0.2846: 0.285 with three decimals, 0.28 with two, as printed
        ("DECS", 62.48, 3968, 0.54),
    ],
    "Qwen3-4B": [("Base", 68.40, 9104, 0.00), ("DECS", 69.72, 4115, 0.61)],
}
ROWS = [(model, *row) for model, rows in TABLES.items() for row in rows]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n):
    for c in range(n + 1):
        right = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(right, k))
            assert pass_at_k(n, c, k) == sum(map(any, subsets)) / len(subsets)


def test_pass_at_k_by_hand():
    assert pass_at_k(4, 2, 2) == 5 / 6  # only the pair of wrong ones fails
    assert pass_at_k(128, 1, 128) == 1.0 and pass_at_k(128, 0, 128) == 0.0
    assert pass_at_k(16, 5, 1) == 5 / 16


def test_pass_at_k_of_many_samples():
    assert pass_at_k(100_000, 100_000, 50_000) == 1.0 and pass_at_k(100_000, 0, 99_999) == 0.0
    assert pass_at_k(100_000, 50_000, 50_000) == 1.0
    assert pass_at_k(10**9, 1, 1) == 1e-9  # no digit lost to 1 - 0.999999999
    assert pass_at_k(10**9, 3, 2) == float(1 - Fraction(10**9 - 3, 10**9) * Fraction(10**9 - 4, 10**9 - 1))


@given(st.integers(1, 200), st.data())
def test_pass_at_k_grows_with_k_and_with_right_ones(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    here = pass_at_k(n, c, k)
    assert 0 <= here <= 1 and (k == n or here <= pass_at_k(n, c, k + 1)) and (c == n or here <= pass_at_k(n, c + 1, k))
    assert pass_at_k(n, c, 1) == c / n


@pytest.mark.parametrize("n,c,k", [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_pass_at_k_of_what_there_is_not(n, c, k):
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize("model,name,acc,tokens,printed", ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_aes_gives_the_published_scores(model, name, acc, tokens, printed):
    _, base_acc, base_tokens, _ = TABLES[model][0]
    assert round(aes(acc, tokens, base_acc, base_tokens), 2) == printed


def test_aes_by_hand():
    assert aes(0.5, 50, 0.5, 100) == 0.5
    assert aes(0.55, 100, 0.5, 100) == pytest.approx(0.3)
    assert aes(0.45, 100, 0.5, 100) == pytest.approx(-0.5)
    assert aes(0.5, 150, 0.5, 100) == -0.5


@given(st.floats(0, 1), st.floats(1, 1e5), st.floats(0.01, 1), st.floats(1, 1e5), st.floats(0.1, 100))
def test_aes_knows_no_unit(acc, tokens, base_acc, base_tokens, scale):
    found = aes(acc, tokens, base_acc, base_tokens)
    assert aes(acc * scale, tokens, base_acc * scale, base_tokens) == pytest.approx(found, rel=1e-6, abs=1e-6)
    assert aes(base_acc, base_tokens, base_acc, base_tokens) == 0


@pytest.mark.parametrize("base", [(0.0, 100), (0.5, 0)])
def test_aes_needs_a_base(base):
    with pytest.raises(ValueError, match="relative to the base"):
        aes(0.5, 50, *base)


def test_both_come_without_torch_ray_or_a_client():
    code = (
        "import sys; from pipeline.evaluation import aes, pass_at_k; "
        "print(*{'torch', 'ray', 'vllm', 'openai', 'transformers', 'sympy', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "", done.stdout + done.stderr


def test_a_percentile_interval_by_hand():
    assert interval(list(range(101)), 0.9) == pytest.approx((5, 95))
    assert interval([3.0]) == (3.0, 3.0)
