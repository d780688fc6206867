"""Two figures that papers compare models by, pass@k and the accuracy-efficiency score; and the interval of a
bootstrap."""

from collections.abc import Sequence
from math import comb

import numpy as np

GAIN = 3.0  # what a relative gain in accuracy weighs against a relative saving of tokens
LOSS = 5.0  # and a relative loss


def interval(samples: Sequence[float] | np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """The percentile interval of bootstrap samples: between the quantiles that leave equal shares outside (Efron and
    Tibshirani 1993, chapter 13). ValueError or IndexError without samples."""
    outside = (1 - confidence) / 2
    low, high = np.quantile(samples, (outside, 1 - outside))
    return float(low), float(high)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that of `k` samples, drawn without replacement from `n` of which `c` are right, one is right at least.

    Unbiased estimate of pass@k for one problem: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, "Evaluating Large Language
    Models Trained on Code", equation 1). Whole numbers up to the one division, so any `n` is exact to the last bit.
    ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    few, many = sorted((c, k))  # C(n-c, k) / C(n, k) = C(n-k, c) / C(n, c): the smaller one keeps the numbers short
    every = comb(n, few)
    return (every - comb(n - many, few)) / every


def aes(acc: float, tokens: float, base_acc: float, base_tokens: float) -> float:
    """The accuracy-efficiency score of a model against its base: the relative saving of tokens, plus `GAIN` times a
    relative gain in accuracy, or less `LOSS` times a relative loss.

    Accuracies in one unit (shares or percent), tokens a reply; of several benchmarks, give the means over them. The
    base itself scores 0. The form gives the scores printed in tables 1 and 2 of arXiv 2509.25827. ValueError where
    the base solves nothing or wrote nothing, since then nothing is relative to it.
    """
    if base_acc <= 0 or base_tokens <= 0:
        raise ValueError(f"AES is relative to the base, which has accuracy {base_acc:g} and {base_tokens:g} tokens")
    gain = (acc - base_acc) / base_acc
    return (base_tokens - tokens) / base_tokens + (GAIN if gain >= 0 else LOSS) * gain
