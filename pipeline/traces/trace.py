"""One sampled answer and the group it belongs to, in token ids."""

from dataclasses import dataclass
from enum import StrEnum


class Stop(StrEnum):
    """Why the engine stopped."""

    EOS = "eos"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True)
class VersionSpan:
    """Tokens [start, end) of a trace were made by weights `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True)
class Trace:
    """One sample. `prompt_ids` [P], `token_ids` [T] (EOS included when sampled), `logprobs` [T] (natural log,
    of the distribution sampled from), `versions` cover [0, T) without gap."""

    problem_id: str
    sample: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[VersionSpan, ...]
    stop: Stop
    text: str


@dataclass(frozen=True)
class Group:
    """The G traces of one issue of one problem; formed by `issue_id`, never by text or position."""

    issue_id: str
    problem_id: str
    traces: tuple[Trace, ...]
