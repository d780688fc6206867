"""A model's replies to a frozen set of problems, counted by problem: what others are compared with. JSON-ready."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pipeline.evaluation.scoring import ScoredTrace
from pipeline.evaluation.summary import by_problem
from pipeline.traces import Stop


@dataclass(frozen=True)
class Tally:
    """One problem's replies. `unknown`: the checker failed; `truncated`: cut at the limit; `tokens` of all replies;
    `necessary` and `thinking` tokens of right replies whose prefix was found (both 0 where nobody looked)."""

    replies: int
    right: int
    unknown: int
    truncated: int
    tokens: int
    necessary: int = 0
    thinking: int = 0


@dataclass(frozen=True)
class Measurement:
    """`version` and `digest` name the weights, `asked` identifies what was asked and how (only equal ones compare).

    `parity`: mean |log-prob difference| (nats) between the engine and the snapshot's reference. `seconds_a_reply`: of
    one engine at full load, grading included. Both None where they were not measured.
    """

    version: int
    digest: str
    asked: str
    problems: Mapping[str, Tally]  # by id
    parity: float | None = None
    seconds_a_reply: float | None = None

    def to_plain(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, object]) -> "Measurement":
        """Read back `to_plain`; TypeError, KeyError or AttributeError for anything else."""
        problems = {key: Tally(**entry) for key, entry in plain["problems"].items()}
        return cls(**{**plain, "problems": problems})


def tally(scored: Sequence[ScoredTrace]) -> dict[str, Tally]:
    """Counts by problem id."""
    return {key: _tally(group) for key, group in by_problem(scored).items()}


def _tally(group: Sequence[ScoredTrace]) -> Tally:
    found = [t for t in group if t.correct and t.prefix_length is not None]
    return Tally(
        replies=len(group),
        right=sum(t.correct is True for t in group),
        unknown=sum(t.correct is None for t in group),
        truncated=sum(t.trace.stop is Stop.LENGTH for t in group),
        tokens=sum(t.length for t in group),
        necessary=sum(t.prefix_length or 0 for t in found),
        thinking=sum(t.think_length for t in found),
    )
