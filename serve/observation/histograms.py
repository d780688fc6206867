"""Quantiles and shares from cumulative buckets: linear inside a bucket, as Prometheus reads them."""

import math
from collections.abc import Mapping


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """The value below which `share` of the observations lie; None without observations. What lies above the last finite
    bound counts as that bound."""
    total = max(buckets.values(), default=0.0)
    if not total:
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if count >= wanted and count > below:
            return low if math.isinf(bound) else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound if math.isfinite(bound) else low, count
    return low


def share_above(buckets: Mapping[float, float], limit: float) -> float | None:
    """The share of observations above `limit`; None without observations."""
    total = max(buckets.values(), default=0.0)
    if not total:
        return None
    low, below = 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if limit <= bound:
            part = 0.0 if math.isinf(bound) or bound == low else (limit - low) / (bound - low)
            return 1 - (below + (count - below) * part) / total
        low, below = bound, count
    return 0.0
