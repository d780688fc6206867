"""Percentiles, and ratios of paired rounds. Pure."""

import random
from collections.abc import Sequence
from statistics import median

import numpy as np

from pipeline.evaluation.estimators import interval


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value at `share` (0 to 1) of the sorted values, linear between neighbours; None without values."""
    if not values:
        return None
    return float(np.quantile(values, share))


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float | None]:
    """{p50, p99}, rounded."""
    found = {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99)}
    return {name: None if value is None else round(value, digits) for name, value in found.items()}


def divided(part: float | None, whole: float | None, digits: int = 3) -> float | None:
    """part / whole, rounded; None where one is missing or nothing is divided by."""
    return None if part is None or not whole else round(part / whole, digits)


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | None]:
    """Median of ours/theirs over rounds, with a 95 % percentile bootstrap interval over the rounds.

    The rounds are drawn again, since what disturbs a machine disturbs both sides of a round alike. No interval for
    fewer than three rounds.
    """
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    if not ratios:
        return {"ratio": None, "low": None, "high": None, "rounds": 0}
    found = {"ratio": median(ratios), "low": None, "high": None, "rounds": len(ratios)}
    if len(ratios) >= 3:
        rng = random.Random(0)
        low, high = interval([median(rng.choices(ratios, k=len(ratios))) for _ in range(2000)])
        found |= {"low": low, "high": high}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}
