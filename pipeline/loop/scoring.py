"""From scored groups to token streams: reward, advantage, batch. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation import ScoredTrace
from pipeline.learner import TokenStreams
from pipeline.problems import Problem
from pipeline.rewards import (
    UNSTEERED,
    Outcome,
    RewardStrategy,
    Steering,
    baseline_of,
    group_advantages,
    joined_spans,
    kept_spans,
)
from pipeline.traces import VersionSpan

Signals = NDArray[np.float64]


@dataclass(frozen=True)
class ScoredGroup:
    """The G scored traces of one issue of one problem; `starts[i]` is how trace i began (none given: plainly)."""

    issue_id: str
    problem: Problem
    traces: tuple[ScoredTrace, ...]
    starts: tuple[Steering, ...] = ()

    @property
    def verdicts(self) -> tuple[bool | None, ...]:
        """Right, wrong or unknown, trace by trace."""
        return tuple(scored.correct for scored in self.traces)

    @property
    def begun(self) -> list[tuple[ScoredTrace, Steering]]:
        """Each trace with how it began."""
        return list(zip(self.traces, self.starts or (UNSTEERED,) * len(self.traces), strict=True))


def outcome_of(scored: ScoredTrace, start: Steering = UNSTEERED) -> Outcome:
    """What the reward may see. Only for traces with a verdict."""
    if scored.correct is None:
        raise ValueError("a trace without a verdict has no outcome; it is masked out of the loss")
    return Outcome(
        scored.length, scored.correct, scored.prefix_length, scored.think_length, start.target_length, start.no_think
    )


def token_signals(scored: ScoredGroup, strategy: RewardStrategy, max_length: int) -> tuple[Signals, Signals]:
    """Rewards and advantages [G, W] of one group, W being its longest response.

    UNKNOWN traces take no part in the group's statistics; their rows stay 0. So do the advantages of tokens that the
    strategy cuts out of the sequence.
    """
    known = [i for i, trace in enumerate(scored.traces) if trace.correct is not None]
    outcomes = [outcome_of(*scored.begun[i]) for i in known]
    width = max(trace.length for trace in scored.traces)
    rewards, advantages = np.zeros((2, len(scored.traces), width))
    if len(known) >= 2:
        rewards[known] = strategy.token_rewards(outcomes, width, max_length)
        advantages[known] = group_advantages(
            rewards[known], [outcome.length for outcome in outcomes], baseline_of(strategy)
        )
        for row, outcome in zip(known, outcomes, strict=True):
            cut = np.ones(width, dtype=bool)
            cut[_places(kept_spans(strategy, outcome))] = False
            advantages[row, cut] = 0.0
    return rewards, advantages


@dataclass(frozen=True)
class _Row:
    """One trace as the learner sees it; T tokens of its response are left."""

    prompt_ids: tuple[int, ...]
    token_ids: NDArray[np.int64]
    advantages: Signals
    logprobs: Signals
    drawn: NDArray[np.bool_]
    versions: tuple[VersionSpan, ...]
    known: bool
    problem_id: str


def to_streams(
    groups: Sequence[ScoredGroup], advantages: Sequence[Signals], strategy: RewardStrategy | None = None
) -> TokenStreams:
    """The batch the learner sees; `advantages[i]` [G, W] belong to `groups[i]`.

    What `strategy` cuts out of a sequence is not there. Behind a cut the engine's log-probabilities belong to another
    context, so they are left out (NaN). Forced tokens and the first of a steered group have the probability of the
    mixture they came from. None of these counts as drawn (see `TokenStreams`).
    """
    rows = [
        _row(scored, start, signal[: scored.length], strategy)
        for group, block in zip(groups, advantages, strict=True)
        for (scored, start), signal in zip(group.begun, block, strict=True)
    ]
    return TokenStreams(
        input_ids=tuple(np.array([*row.prompt_ids, *row.token_ids], dtype=np.int64) for row in rows),
        prompt_length=tuple(len(row.prompt_ids) for row in rows),
        advantages=tuple(row.advantages.astype(np.float32) for row in rows),
        behaviour_logprobs=tuple(row.logprobs.astype(np.float32) for row in rows),
        mask=tuple(np.full(len(row.token_ids), row.known) for row in rows),
        problem_id=tuple(row.problem_id for row in rows),
        versions=tuple(row.versions for row in rows),
        drawn=tuple(row.drawn for row in rows),
    )


def _row(scored: ScoredTrace, start: Steering, signal: Signals, strategy: RewardStrategy | None) -> _Row:
    trace = scored.trace
    logprobs, drawn = np.array(trace.logprobs, dtype=np.float64), np.ones(scored.length, dtype=bool)
    if start.no_think:
        drawn[: scored.answer_start] = False  # the forced tag is all that stands before the answer
    if start.share < 1:
        logprobs[:1] += np.log(start.share)
        drawn[:1] = False
    spans = [(0, scored.length)]
    if scored.correct is not None:
        spans = joined_spans(kept_spans(strategy, outcome_of(scored, start)))
    behind_cut = spans[0][1] if spans and spans[0][0] == 0 else 0
    logprobs[behind_cut:], drawn[behind_cut:] = np.nan, False
    kept = _places(spans)
    return _Row(
        prompt_ids=trace.prompt_ids,
        token_ids=np.array(trace.token_ids, dtype=np.int64)[kept],
        advantages=signal[kept],
        logprobs=logprobs[kept],
        drawn=drawn[kept],
        versions=_kept_versions(trace.versions, kept),
        known=scored.correct is not None,
        problem_id=trace.problem_id,
    )


def _places(spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(start, end) for start, end in spans)])


def _kept_versions(versions: Sequence[VersionSpan], kept: NDArray[np.int64]) -> tuple[VersionSpan, ...]:
    """The spans of the weights over what is left of a response."""
    ends = [(v.version, *np.searchsorted(kept, [v.start, v.end]).tolist()) for v in versions]
    return tuple(VersionSpan(version, start, end) for version, start, end in ends if start < end)
