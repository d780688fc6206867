"""The noun every room passes on first: a question with a known answer."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """One question. `prompt` is the raw question (no chat template); `gold` the reference answer as text.

    `source` names where it came from (a family, a file); `meta` carries whatever the source adds (difficulty, row).
    """

    id: str
    prompt: str
    gold: str
    source: str
    meta: dict[str, object] = field(default_factory=dict)


def with_suffix(prompt: str, suffix: str) -> str:
    """The user's turn: the question, and below it the run's instruction (`problems.prompt_suffix`), if any."""
    return f"{prompt}\n{suffix}" if suffix else prompt
