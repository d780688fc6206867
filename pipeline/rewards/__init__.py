"""Rewards: one file a strategy, the advantage they share, and the hooks that some of them use."""

from pipeline.rewards.advantage import group_advantages, position_advantages
from pipeline.rewards.hooks import UNSTEERED, Steering, joined_spans, kept_spans, steering
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.registry import STRATEGIES, build, strategy_class
from pipeline.rewards.strategy import Baseline, RewardStrategy, baseline_of
from pipeline.rewards.trial import try_out

__all__ = [
    "STRATEGIES",
    "UNSTEERED",
    "Baseline",
    "Outcome",
    "RewardStrategy",
    "Steering",
    "baseline_of",
    "build",
    "group_advantages",
    "joined_spans",
    "kept_spans",
    "position_advantages",
    "steering",
    "strategy_class",
    "try_out",
]
