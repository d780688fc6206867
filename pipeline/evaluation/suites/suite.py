"""What a benchmark is: where its rows are, which columns hold what, and how models are asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Raw = dict[str, Any]


class Kind(StrEnum):
    """How an answer is graded."""

    MATH = "math"  # the answer in the box, by value
    CHOICE = "choice"  # the letter in the box
    CODE = "code"  # the last fenced program, by its tests


@dataclass(frozen=True)
class Protocol:
    """Samples a problem, sampling, and the longest response in tokens: those of arXiv 2509.25827."""

    samples: int
    temperature: float = 0.6
    top_p: float = 0.95
    max_new_tokens: int = 16384


@dataclass(frozen=True)
class Suite:
    """One benchmark. `prompt`, `gold`, `id` and `level` name columns of its rows (`level`: the stated difficulty);
    `adapt` turns a row into one with a prompt and an answer in those columns, or None to leave it out; `meta` gives
    what grading needs besides. `problems` is how many the paper used, None where it does not say.

    Without `protocol` (the tiny world) the run's own `evaluation` section says how to sample.
    """

    name: str
    kind: Kind
    hub: str = ""
    subset: str | None = None
    split: str = "test"
    prompt: str = "problem"
    gold: str = "answer"
    id: str | None = None
    level: str | None = None
    suffix: str = ""
    problems: int | None = None
    protocol: Protocol | None = None
    adapt: Callable[[Raw], Raw | None] = field(default=dict)
    meta: Callable[[Raw], Raw] = field(default=lambda row: {})
    needs: tuple[str, ...] = ()  # columns beside those above
