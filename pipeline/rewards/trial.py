"""A strategy tried out on made-up traces, before anything is started for it."""

import numpy as np

from pipeline.config import UserError
from pipeline.rewards.advantage import position_advantages
from pipeline.rewards.hooks import steering
from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import RewardStrategy, baseline_of


def try_out(strategy: RewardStrategy, group_size: int, max_length: int) -> None:
    """UserError where options do not fit the run's lengths, or a reward is not finite numbers [G, W].

    Without it such a mistake would show only after engines and learner have started and the first batch is sampled.
    """
    steering(strategy, "trial", group_size, 0, max_length)
    long = Outcome(max_length, True, 1, max_length - 1, target_length=max_length)
    outcomes = [long, Outcome(1, False, None, 1, target_length=max_length)]
    rewards = np.asarray(strategy.token_rewards(outcomes, max_length, max_length))
    if rewards.shape != (2, max_length) or not np.isfinite(rewards).all():
        raise UserError(
            f"reward '{strategy.name}' gives an array {rewards.shape} for 2 traces of up to {max_length} tokens; "
            f"token_rewards must return finite numbers of shape (2, {max_length})"
        )
    position_advantages(rewards, baseline_of(strategy))
