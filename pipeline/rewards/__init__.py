"""Rewards: one file a strategy, and the advantage they share."""

from pipeline.rewards.advantage import group_advantages, position_advantages
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.registry import STRATEGIES, build, strategy_class
from pipeline.rewards.strategy import RewardStrategy

__all__ = [
    "STRATEGIES",
    "Outcome",
    "RewardStrategy",
    "build",
    "group_advantages",
    "position_advantages",
    "strategy_class",
]
