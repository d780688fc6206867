"""Decisions as JSON lines: written while serving, read to fit tables and costs."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from pipeline.config import UserError
from serve.speculation.state import State

FORMAT = 1


@dataclass(frozen=True)
class Decision:
    """One decision and what it came to.

    `asked` and `emitted` are tokens by sequence, `cost` is in the cost units of drafting and verifying together.
    `drafted` is what the drafter proposed of what was asked (None: all), and `seconds`, where measured, the wall time
    of the step that verified, in which the next decision's tokens were drafted.
    """

    step: int
    policy: str
    k: int
    asked: tuple[int, ...]
    emitted: tuple[int, ...]
    cost: float
    state: State
    drafted: tuple[int, ...] | None = None
    seconds: float | None = None

    def as_line(self) -> str:
        return json.dumps({"v": FORMAT} | asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> "Decision":
        """UserError when the line is not a decision of this format."""
        try:
            data = json.loads(line)
            if data.pop("v") != FORMAT:
                raise UserError("another format of decision log")
            data |= {"asked": tuple(data["asked"]), "emitted": tuple(data["emitted"]), "state": State(**data["state"])}
            if data.get("drafted") is not None:
                data["drafted"] = tuple(data["drafted"])
            found = cls(**data)
            if len(found.asked) != len(found.emitted) or not found.asked or found.cost <= 0:
                raise UserError("a decision needs one `asked` for each `emitted`, at least one, and a cost above 0")
            if not all(0 <= a <= found.k and 1 <= e <= a + 1 for a, e in zip(found.asked, found.emitted, strict=True)):
                raise UserError("more tokens emitted or asked for than the draft length allows")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"not a decision ({error!r})") from None
        return found


class DecisionLog:
    """Appends decisions to a file, a line each. UserError when it cannot be opened."""

    def __init__(self, path: str | Path) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = open(path, "a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot write the decision log ({error.strerror})") from None
        self.lines = 0

    def write(self, decision: Decision) -> None:
        self._file.write(decision.as_line() + "\n")
        self._file.flush()
        self.lines += 1

    def close(self) -> None:
        self._file.close()


def read_decisions(path: str | Path) -> Iterator[Decision]:
    """The decisions in a log. UserError with file and line for a bad one; a torn last line (no newline) is left."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return
                try:
                    yield Decision.from_line(line)
                except UserError as error:
                    raise UserError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read the decision log ({error.strerror})") from None
