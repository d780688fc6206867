"""The two things beyond a reward that some methods do: cut tokens out of a sequence, and steer how samples begin.

A strategy that does so has a method `kept_spans` or `steer`; one that has neither is left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.rewards.outcome import Outcome
from pipeline.rewards.strategy import RewardStrategy

Span = tuple[int, int]


@dataclass(frozen=True)
class Steering:
    """How one sample of a group begins.

    `note` is text below the problem in the user's turn, and `target_length` the number of tokens it names, if any.
    `no_think` makes the response start with the end-of-think tag, which then counts as its first tokens.
    `share` is the probability with which a sample of the problem begins this way: where one problem's samples begin
    differently the first token was drawn from a mixture, and its behaviour probability is `share` times its own.
    """

    note: str = ""
    target_length: int | None = None
    no_think: bool = False
    share: float = 1.0


UNSTEERED = Steering()


def steering(
    strategy: RewardStrategy, problem_key: str, group_size: int, seed: int, max_length: int
) -> tuple[Steering, ...]:
    """How each sample of a group begins: `strategy.steer(problem_key, group_size, seed, max_length)`, or plainly.

    `max_length` is the longest response the run allows, in tokens. The strategy must answer the same for the same
    arguments, or a resumed run would not be the run it resumes. ValueError where it answers for another group size.
    """
    steer = getattr(strategy, "steer", None)
    if steer is None:
        return (UNSTEERED,) * group_size
    found = tuple(steer(problem_key, group_size, seed, max_length))
    if len(found) != group_size:
        raise ValueError(f"reward '{strategy.name}' steers {len(found)} samples of a group of {group_size}")
    return found


def kept_spans(strategy: RewardStrategy | None, outcome: Outcome) -> list[Span]:
    """[start, end) token spans of a response that stay in the sequence: `strategy.kept_spans(outcome)`, or all of it.

    ValueError where the spans overlap, are out of order or leave the response.
    """
    keep = getattr(strategy, "kept_spans", None)
    if keep is None:
        return [(0, outcome.length)]
    found = [(int(start), int(end)) for start, end in keep(outcome)]
    edges = [0, *(edge for span in found for edge in span), outcome.length]
    if edges != sorted(edges):
        raise ValueError(f"kept spans {found} do not run in order through a response of {outcome.length} tokens")
    return found


def joined_spans(spans: Sequence[Span]) -> list[Span]:
    """The same tokens without empty spans and with touching ones made one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], end)
        elif start < end:
            joined.append((start, end))
    return joined
