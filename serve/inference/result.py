"""What an inference gives back, whole or in pieces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["reasoning", "answer"]


class InferenceFailed(RuntimeError):
    """The engine gave no whole reply, now; the same request may succeed later."""


@dataclass(frozen=True)
class Acceptance:
    """Tokens drafted for one request, and how many of them its model accepted."""

    drafted: int
    accepted: int

    @property
    def share(self) -> float:
        return self.accepted / self.drafted


def acceptance_of(drafts: Mapping[str, Any]) -> Acceptance | None:
    """From vLLM's figures of one request; None where nothing was drafted."""
    drafted = drafts.get("num_draft_tokens", 0)
    return Acceptance(drafted, drafts["num_accepted_draft_tokens"]) if drafted else None


@dataclass(frozen=True)
class InferenceResult:
    """One reply.

    `text` is the answer alone, `reasoning` the thinking before it. `reasoning_tokens` are those before the end of the
    thinking; `answer_tokens` all others that were generated (the mark itself and the end of the sequence are among
    them). `acceptance` is None where nothing was drafted, or where an endpoint does not tell. `first_token_s` and
    `total_s` are seconds from the call (once the engine has started). `weights` is the mark of the weights that wrote
    the reply (None: not told). `finish` is `stop` or `length`. `effective` has the levers that were in effect for this
    request, by name.
    """

    text: str
    reasoning: str
    prompt_tokens: int
    reasoning_tokens: int
    answer_tokens: int
    acceptance: Acceptance | None
    first_token_s: float
    total_s: float
    weights: str | None
    finish: str | None
    effective: Mapping[str, Any]

    @property
    def output_tokens(self) -> int:
        return self.reasoning_tokens + self.answer_tokens


@dataclass(frozen=True)
class Piece:
    """Text of a stream, in order, and which part of the reply it is of. The last piece has no text and the result."""

    text: str
    phase: Phase = "answer"
    result: InferenceResult | None = None


@dataclass(frozen=True)
class Usage:
    """What a backend found out about a finished reply; the caller's clock and levers make it a result."""

    prompt_tokens: int
    reasoning_tokens: int
    answer_tokens: int
    acceptance: Acceptance | None
    weights: str | None
    finish: str | None
