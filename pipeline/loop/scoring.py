"""From scored groups to token streams: reward, advantage, batch. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation import ScoredTrace
from pipeline.learner import TokenStreams
from pipeline.problems import Problem
from pipeline.rewards import Outcome, RewardStrategy, group_advantages

Signals = NDArray[np.float64]


@dataclass(frozen=True)
class ScoredGroup:
    """The G scored traces of one issue of one problem."""

    issue_id: str
    problem: Problem
    traces: tuple[ScoredTrace, ...]

    @property
    def verdicts(self) -> tuple[bool | None, ...]:
        """Right, wrong or unknown, trace by trace."""
        return tuple(scored.correct for scored in self.traces)


def outcome_of(scored: ScoredTrace) -> Outcome:
    """What the reward may see. Only for traces with a verdict."""
    if scored.correct is None:
        raise ValueError("a trace without a verdict has no outcome; it is masked out of the loss")
    return Outcome(scored.length, scored.correct, scored.prefix_length, scored.think_length)


def token_signals(scored: ScoredGroup, strategy: RewardStrategy, max_length: int) -> tuple[Signals, Signals]:
    """Rewards and advantages [G, W] of one group, W being its longest response.

    UNKNOWN traces take no part in the group's statistics; their rows stay 0.
    """
    known = [i for i, trace in enumerate(scored.traces) if trace.correct is not None]
    outcomes = [outcome_of(scored.traces[i]) for i in known]
    width = max(trace.length for trace in scored.traces)
    rewards, advantages = np.zeros((2, len(scored.traces), width))
    if len(known) >= 2:
        rewards[known] = strategy.token_rewards(outcomes, width, max_length)
        advantages[known] = group_advantages(rewards[known], [outcome.length for outcome in outcomes])
    return rewards, advantages


def to_streams(groups: Sequence[ScoredGroup], advantages: Sequence[Signals]) -> TokenStreams:
    """The batch the learner sees; `advantages[i]` [G, W] belong to `groups[i]`."""
    rows = [
        (scored, row[: scored.length])
        for group, block in zip(groups, advantages, strict=True)
        for scored, row in zip(group.traces, block, strict=True)
    ]
    return TokenStreams(
        input_ids=tuple(np.array([*t.trace.prompt_ids, *t.trace.token_ids], dtype=np.int64) for t, _ in rows),
        prompt_length=tuple(len(t.trace.prompt_ids) for t, _ in rows),
        advantages=tuple(row.astype(np.float32) for _, row in rows),
        behaviour_logprobs=tuple(np.array(t.trace.logprobs, dtype=np.float32) for t, _ in rows),
        mask=tuple(np.full(t.length, t.correct is not None) for t, _ in rows),
        problem_id=tuple(t.trace.problem_id for t, _ in rows),
        versions=tuple(t.trace.versions for t, _ in rows),
    )
