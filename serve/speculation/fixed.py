"""Policies that do not learn while serving: one length for all, and a table by phase and batch size."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import UserError, nearest
from serve.speculation.policy import Policy
from serve.speculation.state import PHASES, State, bucket

TABLE_FORMAT = 1


class Static(Policy):
    """Always `k`: what an engine does without a policy."""

    name = "static"

    def __init__(self, k_max: int, k: int, seed: int = 0, dwell: int = 1) -> None:
        super().__init__(k_max, seed, dwell)
        if not 0 <= k <= k_max:
            raise UserError(f"a static draft length must lie in 0 ... {k_max}, it is {k}")
        self.k = k

    def _choose(self, state: State) -> int:
        return self.k


@dataclass(frozen=True)
class Table:
    """Draft length by phase and batch bucket: `lengths[phase][lowest batch of the bucket]`.

    A batch takes the entry of the largest bucket that is not above it; below the smallest, the smallest one's.
    """

    k_max: int
    lengths: Mapping[str, Mapping[int, int]]

    def __post_init__(self) -> None:
        for phase, row in self.lengths.items():
            if phase not in PHASES:
                raise UserError(f"unknown phase {phase!r} in a draft-length table{nearest(phase, PHASES)}")
            for start, k in row.items():
                if start < 1 or start != bucket(start):
                    raise UserError(f"batch sizes in a draft-length table are powers of two, {phase} has {start}")
                if not 0 <= k <= self.k_max:
                    raise UserError(f"draft length {k} ({phase}, batch {start}) is not in 0 ... {self.k_max}")
        for phase in PHASES:
            if not self.lengths.get(phase):
                raise UserError(f"a draft-length table needs the phases {' and '.join(PHASES)}; {phase} is missing")

    def length(self, phase: str, batch: int) -> int:
        row = self.lengths[phase]
        below = [start for start in row if start <= batch]
        return row[max(below) if below else min(row)]

    def as_ranges(self, phase: str) -> list[list[int]]:
        """[[first batch, last batch, k], ...]: vLLM's `num_speculative_tokens_per_batch_size`, which knows no phases
        and needs none of this package. It counts prefills as batch too."""
        starts = sorted(self.lengths[phase])
        ends = [start - 1 for start in starts[1:]] + [1 << 20]
        first = [1, *starts[1:]]
        return [[a, b, self.lengths[phase][s]] for a, b, s in zip(first, ends, starts, strict=True)]

    def save(self, path: str | Path) -> None:
        rows = {phase: {str(start): k for start, k in row.items()} for phase, row in self.lengths.items()}
        data = {"format": TABLE_FORMAT, "k_max": self.k_max, "lengths": rows}
        Path(path).write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Table":
        """UserError when the file is missing, or is not such a table."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            lengths = {phase: {int(a): int(k) for a, k in row.items()} for phase, row in data["lengths"].items()}
            if data["format"] != TABLE_FORMAT:
                raise UserError(f"{path}: draft-length table of format {data['format']}; known: {TABLE_FORMAT}")
            return cls(int(data["k_max"]), lengths)
        except OSError as error:
            raise UserError(f"{path}: cannot read the draft-length table ({error.strerror})") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} is not a draft-length table ({error!r}); write one with fit_table()") from None


class TablePolicy(Policy):
    """Looks the length up in a `Table`, as fitted from logs by `fit_table`."""

    name = "table"

    def __init__(self, k_max: int, table: Table | str | Path, seed: int = 0, dwell: int = 1) -> None:
        super().__init__(k_max, seed, dwell)
        self.table = table if isinstance(table, Table) else Table.load(table)
        if self.table.k_max != k_max:
            raise UserError(f"the draft-length table was made for k_max={self.table.k_max}, the engine has {k_max}")

    def _choose(self, state: State) -> int:
        return self.table.length(state.phase, state.batch)
