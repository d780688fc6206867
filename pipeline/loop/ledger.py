"""The ledger: every problem issued is in exactly one place.

issued -> scored -> trained(step) | dropped(reason). It travels with the checkpoint; what was issued or scored but
not yet trained when a run stopped is issued again on resume.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Where an issue of a problem is."""

    ISSUED = "issued"
    SCORED = "scored"
    DROPPED = "dropped"
    TRAINED = "trained"


NEXT = {
    State.ISSUED: {State.SCORED},
    State.SCORED: {State.DROPPED, State.TRAINED},
    State.DROPPED: set(),
    State.TRAINED: set(),
}


@dataclass
class Entry:
    """One issue: `detail` is the drop reason or the training step."""

    problem_id: str
    epoch: int
    state: State = State.ISSUED
    detail: str = ""


@dataclass
class Ledger:
    """All issues by id (`<epoch>/<problem id>`); an illegal move raises ValueError."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def issue(self, problem_id: str, epoch: int) -> str:
        """Notes a problem as issued in this epoch and returns its issue id."""
        issue_id = f"{epoch}/{problem_id}"
        if issue_id in self.entries:
            raise ValueError(f"problem {problem_id} was already issued in epoch {epoch}")
        self.entries[issue_id] = Entry(problem_id, epoch)
        return issue_id

    def move(self, issue_id: str, state: State, detail: str = "") -> None:
        """Moves one issue on; only the next legal states are accepted."""
        entry = self.entries.get(issue_id)
        if entry is None:
            raise ValueError(f"issue {issue_id} is not in the ledger")
        if state not in NEXT[entry.state]:
            raise ValueError(f"issue {issue_id} cannot go from {entry.state} to {state}")
        entry.state, entry.detail = state, detail

    def counts(self) -> dict[str, int]:
        """Issues by state."""
        found = Counter(entry.state for entry in self.entries.values())
        return {state.value: found[state] for state in State}

    def dropped_by_reason(self) -> dict[str, int]:
        """Dropped issues by reason."""
        return dict(Counter(e.detail for e in self.entries.values() if e.state is State.DROPPED))

    def digest(self) -> str:
        """SHA-256 (hex) over which problems were issued in which epoch: equal for runs that saw the same problems."""
        return hashlib.sha256("\n".join(sorted(self.entries)).encode()).hexdigest()

    def unfinished(self) -> list[str]:
        """Issues that never reached training or a drop, in the order they were issued."""
        return [key for key, e in self.entries.items() if e.state in (State.ISSUED, State.SCORED)]

    def take_back_unfinished(self) -> list[tuple[str, int]]:
        """Removes unfinished issues and returns their (problem id, epoch), to be issued again."""
        return [(e.problem_id, e.epoch) for e in (self.entries.pop(key) for key in self.unfinished())]

    def to_state(self) -> list[list[object]]:
        """A JSON-ready copy."""
        return [[e.problem_id, e.epoch, e.state.value, e.detail] for e in self.entries.values()]

    @classmethod
    def from_state(cls, rows: list[list[object]]) -> "Ledger":
        """The ledger that `to_state` wrote."""
        entries = [Entry(str(p), int(str(n)), State(str(s)), str(d)) for p, n, s, d in rows]
        return cls({f"{e.epoch}/{e.problem_id}": e for e in entries})
