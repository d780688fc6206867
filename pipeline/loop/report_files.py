"""What a run keeps for its report, in `report/` of its folder.

A resumed run goes on with what an earlier part measured."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from pipeline.config import write_whole
from pipeline.loop.before_after import Answered
from pipeline.tracking.trace_view import TraceView, from_plain, to_plain

FOLDER = "report"


@dataclass(frozen=True)
class Measured:
    """Held-out problems answered by one version. `asked` identifies what was asked and how: only equal ones compare."""

    asked: str
    version: int
    answers: dict[str, Answered]  # by problem id
    views: list[TraceView]  # of a few of the problems, one reply each

    def line(self) -> str:
        """For people, while the run goes on."""
        known = [a.accuracy for a in self.answers.values() if a.accuracy is not None]
        tokens = fmean(answer.tokens for answer in self.answers.values())
        right = f"{fmean(known):.3f}" if known else "-"
        return f"{len(self.answers)} held-out problems, version {self.version}: accuracy {right}  tokens {tokens:.0f}"


def _write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(data))


def keep_measured(folder: Path, name: str, measured: Measured) -> None:
    """Keeps the measurement `name` (before, after) of the run in `folder`."""
    answers = {key: asdict(answer) for key, answer in measured.answers.items()}
    plain = {"asked": measured.asked, "version": measured.version, "answers": answers}
    _write(folder / FOLDER / f"{name}.json", {**plain, "views": [to_plain(view) for view in measured.views]})


def kept_measured(folder: Path, name: str) -> Measured | None:
    """The measurement `name`; None where there is none."""
    path = folder / FOLDER / f"{name}.json"
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    answers = {key: Answered(**answer) for key, answer in data["answers"].items()}
    return Measured(data["asked"], data["version"], answers, [from_plain(view) for view in data["views"]])


def step_name(step: int) -> str:
    """The name of a step's files, counted from 1 as in the run's lines and titles (`step` counts from 0)."""
    return f"step_{step + 1:05d}"


def keep_step(folder: Path, step: int, views: Sequence[TraceView]) -> None:
    """Keeps the example traces of a step; a replay's replace them."""
    _write(folder / FOLDER / f"{step_name(step)}.json", [to_plain(view) for view in views])


def kept_steps(folder: Path) -> list[Path]:
    """Files of the steps that have example traces, in order."""
    return sorted((folder / FOLDER).glob("step_*.json"))


def kept_views(path: Path) -> list[TraceView]:
    """The example traces in a step's file."""
    return [from_plain(view) for view in json.loads(path.read_text(encoding="utf-8"))]
