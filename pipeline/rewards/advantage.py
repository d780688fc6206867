"""Group-relative advantages per token position (paper eq. 10)."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from pipeline.config import UserError, nearest
from pipeline.rewards.strategy import Baseline, FloatArray

EPSILON = 1e-6


def position_advantages(rewards: ArrayLike, baseline: Baseline = "group_std") -> FloatArray:
    """Compare rewards [G, W] with their group at each position, before anything is masked. In float64.

    With the mean over all G at the position:

    - `group_std` (GRPO): (r - mean) / (std + 1e-6), with the sample standard deviation (ddof=1);
    - `group_mean`: r - mean;
    - `leave_one_out` (RLOO): r less the mean of the others, which is (r - mean) * G / (G - 1);
    - `none`: r itself, for strategies whose reward is a difference already.

    Padding takes part: a long redundant tail meets the full reward of the responses that already ended. Where all G
    rewards are equal the difference is exactly 0; sums of equal floats need not divide back, and the leftover over
    1e-6 would be a real push. But for `none` each column sums to 0. Raises UserError for a group of one or an unknown
    baseline, ValueError for a wrong shape or a value not finite.
    """
    rewards_GW = np.array(rewards, dtype=np.float64)
    if rewards_GW.ndim != 2:
        raise ValueError(f"rewards must be [G, W], got shape {rewards_GW.shape}")
    group = len(rewards_GW)
    if group < 2:
        raise UserError(f"a group of {group} has no baseline for its advantage; set rollout.group_size to 2 or more")
    if not np.isfinite(rewards_GW).all():
        raise ValueError("rewards hold NaN or infinity")
    if baseline not in get_args(Baseline):
        raise UserError(f"the strategy's baseline '{baseline}' is unknown{nearest(str(baseline), get_args(Baseline))}")
    if baseline == "none":
        return rewards_GW
    equal_W = rewards_GW.max(axis=0) == rewards_GW.min(axis=0)
    difference_GW = np.where(equal_W, 0.0, rewards_GW - rewards_GW.mean(axis=0))
    if baseline == "group_std":
        return difference_GW / (rewards_GW.std(axis=0, ddof=1) + EPSILON)
    return difference_GW * (group / (group - 1)) if baseline == "leave_one_out" else difference_GW


def group_advantages(rewards: ArrayLike, lengths: Sequence[int], baseline: Baseline = "group_std") -> FloatArray:
    """Advantages [G, W] of one group from rewards [G, W] and response lengths [G] in tokens.

    As `position_advantages`, then 0 at positions at or past a response's length. Groups never meet: call it once
    a group. A response of no tokens gets an all-zero row, though its reward still counts in the baseline.
    """
    advantages_GW = position_advantages(rewards, baseline)
    lengths_G = np.asarray(lengths)
    group, width = advantages_GW.shape
    if lengths_G.shape != (group,) or (lengths_G < 0).any() or (lengths_G > width).any():
        raise ValueError(f"lengths must be {group} numbers in 0..{width}, got {list(lengths)}")
    return np.where(np.arange(width)[None, :] < lengths_G[:, None], advantages_GW, 0.0)
