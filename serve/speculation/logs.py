"""Decisions as JSON lines: written while serving, read to fit tables and costs."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pipeline.config import UserError
from serve.speculation.state import State

FORMAT = 1
MOST_SEQUENCES = 10**6  # of one step, and draft tokens of one sequence; more is no log of an engine
MOST = 1e12  # of a step's number, cost and seconds


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
            if not isinstance(data, dict):
                raise UserError("not a decision (no JSON object)")
            if data.pop("v") != FORMAT:
                raise UserError("another format of decision log")
            data |= {"asked": tuple(data["asked"]), "emitted": tuple(data["emitted"]), "state": State(**data["state"])}
            if data.get("drafted") is not None:
                data["drafted"] = tuple(data["drafted"])
            found = cls(**data)
            _check(found)
            if len(found.asked) != len(found.emitted) or not found.asked or found.cost <= 0:
                raise UserError("a decision needs one `asked` for each `emitted`, at least one, and a cost above 0")
            if not all(0 <= a <= found.k and 1 <= e <= a + 1 for a, e in zip(found.asked, found.emitted, strict=True)):
                raise UserError("more tokens emitted or asked for than the draft length allows")
        except RecursionError:
            raise UserError("not a decision (nested too deeply)") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"not a decision ({error!r})") from None
        return found


def _check(row: Decision) -> None:
    """UserError for a value of another kind, or beyond what an engine can log."""
    state = row.state
    _whole("step", row.step, 0, int(MOST))
    _whole("batch", state.batch, 1, MOST_SEQUENCES)
    _whole("k_max", state.k_max, 0, MOST_SEQUENCES)
    _whole("k", row.k, 0, state.k_max)
    for name, values in (("asked", row.asked), ("emitted", row.emitted), ("drafted", row.drafted or ())):
        for value in values:
            _whole(name, value, 0, state.k_max + 1)
    if row.drafted is not None and len(row.drafted) != len(row.asked):
        raise UserError("a decision needs one `drafted` for each `asked`")
    _number("cost", row.cost)
    for name, optional in (("seconds", row.seconds), ("acceptance", state.acceptance)):
        if optional is not None:
            _number(name, optional)
    if state.cap is not None:
        _whole("cap", state.cap, 0, int(MOST))
    if not isinstance(row.policy, str):
        raise UserError("policy must be a name")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}, not {str(value)[:40]}")


def _number(name: str, value: Any) -> None:
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise UserError(f"{name} must be a number from 0 to {MOST:g}, not {str(value)[:40]}")


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
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n") and line.startswith(b"{"):
                    return
                try:
                    yield Decision.from_line(line.decode("utf-8"))
                except UnicodeDecodeError:
                    raise UserError(f"{path}, line {number}: not a decision (no text; is it compressed?)") from None
                except UserError as error:
                    raise UserError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read the decision log ({error.strerror})") from None
