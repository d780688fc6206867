"""What a reader sees of a trace: its tokens as text, each with its part, reward and advantage. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from pipeline.rewards.outcome import Outcome


class Part(StrEnum):
    """What a token is to the answer."""

    NECESSARY = "necessary"  # thinking up to the first right answer
    REDUNDANT = "redundant"  # thinking after it
    UNMARKED = "unmarked"  # thinking of a trace in which no right answer was found
    ANSWER = "answer"  # from the end-of-think token on


@dataclass(frozen=True)
class TokenView:
    """One token. `reward` and `advantage` are None where the trace carries no loss."""

    text: str
    part: Part
    reward: float | None = None
    advantage: float | None = None


@dataclass(frozen=True)
class TraceView:
    """One trace. `verdict` is right, wrong or unknown; `version` the weights that made it (`3`, or `3–4` for a trace
    that ran through a swap); traces of one `group` are shown together."""

    problem: str
    gold: str
    source: str
    verdict: str
    version: str
    tokens: tuple[TokenView, ...]
    group: str = ""
    stop: str = ""
    label: str = ""

    def count(self, part: Part) -> int:
        """Tokens of one part."""
        return sum(token.part is part for token in self.tokens)

    @property
    def nrp_share(self) -> float | None:
        """Necessary tokens among the thinking tokens; None where no right answer was found in them."""
        necessary, redundant = self.count(Part.NECESSARY), self.count(Part.REDUNDANT)
        return necessary / (necessary + redundant) if necessary else None

    def runs(self) -> list[tuple[Part, int, list[TokenView]]]:
        """(part, index of the first token, tokens) for each stretch of one part, in order."""
        found, start = [], 0
        for part, tokens in groupby(self.tokens, key=lambda token: token.part):
            stretch = list(tokens)
            found.append((part, start, stretch))
            start += len(stretch)
        return found


def part_of(index: int, outcome: Outcome) -> Part:
    """The part of token `index` [0, T) of a response."""
    if index >= outcome.think_length:
        return Part.ANSWER
    if outcome.prefix_length is None or not outcome.correct:
        return Part.UNMARKED
    return Part.NECESSARY if index < outcome.prefix_length else Part.REDUNDANT


def token_views(
    texts: Sequence[str],
    outcome: Outcome,
    rewards: Sequence[float] | None = None,
    advantages: Sequence[float] | None = None,
) -> tuple[TokenView, ...]:
    """Views of a response: `texts` [T] as decoded token by token, `rewards` and `advantages` [>= T] (padding is left
    out). ValueError when `texts` has not `outcome.length` items."""
    if len(texts) != outcome.length:
        raise ValueError(f"{len(texts)} token texts for a trace of {outcome.length} tokens")
    for name, row in (("rewards", rewards), ("advantages", advantages)):
        if row is not None and len(row) < len(texts):
            raise ValueError(f"{len(row)} {name} for a trace of {len(texts)} tokens")
    return tuple(
        TokenView(
            text,
            part_of(index, outcome),
            None if rewards is None else float(rewards[index]),
            None if advantages is None else float(advantages[index]),
        )
        for index, text in enumerate(texts)
    )


def to_plain(trace: TraceView) -> dict[str, object]:
    """A trace as JSON-ready data, a token as [text, part, reward, advantage]; signals keep six digits."""
    tokens = [[t.text, t.part.value, _short(t.reward), _short(t.advantage)] for t in trace.tokens]
    return {**{name: value for name, value in vars(trace).items() if name != "tokens"}, "tokens": tokens}


def from_plain(data: dict) -> TraceView:
    """The trace that `to_plain` wrote down."""
    tokens = tuple(TokenView(text, Part(part), reward, advantage) for text, part, reward, advantage in data["tokens"])
    return TraceView(**{**data, "tokens": tokens})


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
