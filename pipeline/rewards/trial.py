"""A strategy tried out on made-up traces, before anything is started for it."""

import numpy as np

from pipeline.config import UserError
from pipeline.rewards.advantage import position_advantages
from pipeline.rewards.hooks import steering
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import RewardStrategy, baseline_of

LARGEST = 1e9  # squares of much larger rewards leave single precision


def try_out(strategy: RewardStrategy, group_size: int, max_length: int) -> None:
    """UserError where options do not fit the run's lengths, or a reward is not finite numbers [G, W].

    Without it such a mistake would show only after engines and learner have started and the first batch is sampled.
    """
    steering(strategy, "trial", group_size, 0, max_length)
    long = Outcome(max_length, True, 1, max_length - 1, target_length=max_length)
    outcomes = [long, Outcome(1, False, None, 1, target_length=max_length)]
    rewards = np.asarray(strategy.token_rewards(outcomes, max_length, max_length))
    if not np.isfinite(rewards).all() or np.abs(rewards).max(initial=0) > LARGEST:
        raise UserError(
            f"reward '{strategy.name}' gives rewards of up to {np.abs(rewards).max():.3g} with these options, and "
            f"{LARGEST:g} is the most that an advantage can be made of; give smaller ones"
        )
    if rewards.shape != (2, max_length):
        raise UserError(
            f"reward '{strategy.name}' gives an array {rewards.shape} for 2 traces of up to {max_length} tokens; "
            f"token_rewards must return an array of shape (2, {max_length})"
        )
    position_advantages(rewards, baseline_of(strategy))
