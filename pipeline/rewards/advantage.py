"""Group-relative advantages per token position (paper eq. 10)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pipeline.config import UserError
from pipeline.rewards.strategy import FloatArray

EPSILON = 1e-6


def position_advantages(rewards: ArrayLike) -> FloatArray:
    """Normalise rewards [G, W] over the group at each position, before anything is masked.

    (r - mean) / (std + 1e-6) with the sample standard deviation (ddof=1), in float64. Padding takes part: a long
    redundant tail meets the full reward of the responses that already ended. Where all G rewards are equal the
    result is exactly 0; sums of equal floats need not divide back, and the leftover over 1e-6 would be a real push.
    Each column sums to 0. Raises UserError for a group of one, ValueError for a wrong shape or a value not finite.
    """
    rewards_GW = np.asarray(rewards, dtype=np.float64)
    if rewards_GW.ndim != 2:
        raise ValueError(f"rewards must be [G, W], got shape {rewards_GW.shape}")
    if len(rewards_GW) < 2:
        raise UserError(
            f"a group of {len(rewards_GW)} has no baseline for its advantage; set rollout.group_size to 2 or more"
        )
    if not np.isfinite(rewards_GW).all():
        raise ValueError("rewards hold NaN or infinity")
    mean_W = rewards_GW.mean(axis=0)
    std_W = rewards_GW.std(axis=0, ddof=1)
    equal_W = rewards_GW.max(axis=0) == rewards_GW.min(axis=0)
    return np.where(equal_W, 0.0, (rewards_GW - mean_W) / (std_W + EPSILON))


def group_advantages(rewards: ArrayLike, lengths: Sequence[int]) -> FloatArray:
    """Advantages [G, W] of one group from rewards [G, W] and response lengths [G] in tokens.

    As `position_advantages`, then 0 at positions at or past a response's length. Groups never meet: call it once
    a group. A response of no tokens gets an all-zero row, though its reward still counts in the baseline.
    """
    advantages_GW = position_advantages(rewards)
    lengths_G = np.asarray(lengths)
    group, width = advantages_GW.shape
    if lengths_G.shape != (group,) or (lengths_G < 0).any() or (lengths_G > width).any():
        raise ValueError(f"lengths must be {group} numbers in 0..{width}, got {list(lengths)}")
    return np.where(np.arange(width)[None, :] < lengths_G[:, None], advantages_GW, 0.0)
