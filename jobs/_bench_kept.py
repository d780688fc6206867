"""Measured rows on disk: a run goes on with those measured in the same way, and overwrites no others."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs._bench_rows import Row
from pipeline.config import UserError, config_digest, write_whole
from pipeline.config.schema import Tracking

if TYPE_CHECKING:
    from jobs._bench_measure import Bench, Entry

log = logging.getLogger(__name__)


def kept_rows(bench: "Bench", rows: Sequence[Row]) -> "dict[str, tuple[list[str], Entry]]":
    """By row what it stands on and its entry, for the rows that were measured before. UserError where one was measured
    in another way: its results would be overwritten. A torn file is told and left out."""
    identity, found = _identity(bench), {}
    for row in rows:
        kept = _read(row_file(bench, row), row)
        if kept is not None and kept["entry"]["ran"]:
            if {name: value for name, value in kept["identity"].items() if name != "stack"} != identity:
                raise _another_way(bench, row, "another config or other options")
            found[row.name] = kept["identity"]["stack"], kept["entry"]
    return found


def reused(bench: "Bench", row: Row, stack: Sequence[str], kept: "tuple[list[str], Entry] | None") -> "Entry | None":
    """The kept entry; None without one. UserError when it stands on other rows' levers than `stack`."""
    if kept is None:
        return None
    if kept[0] != list(stack):
        raise _another_way(bench, row, f"{'+'.join(kept[0]) or 'nothing'} below it, now {'+'.join(stack) or 'nothing'}")
    return kept[1]


def keep(bench: "Bench", row: Row, stack: Sequence[str], entry: "Entry") -> None:
    """Writes the entry."""
    path = row_file(bench, row)
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = _identity(bench) | {"stack": list(stack)}
    write_whole(path, json.dumps({"identity": identity, "entry": entry}, indent=1))


def row_file(bench: "Bench", row: Row) -> Path:
    """Where the row's entry is kept."""
    from jobs._bench_measure import folder_name

    return bench.folder / "rows" / folder_name(row) / "row.json"


def _identity(bench: "Bench") -> dict[str, Any]:
    config = config_digest(bench.cfg.model_copy(update={"tracking": Tracking()}))
    return {"config": config, **bench.plan.identity(), "answered": len(bench.evaluation.wanted)}


def _read(path: Path, row: Row) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        kept = json.loads(path.read_text())
        _ = kept["entry"]["ran"], kept["identity"]["stack"]
    except (ValueError, KeyError, TypeError) as error:
        log.warning("row %s: %s is torn (%s); the row counts as not measured", row.name, path, error)
        return None
    return kept


def _another_way(bench: "Bench", row: Row, how: str) -> UserError:
    return UserError(
        f"{bench.folder} holds row {row.name} measured with {how}; give another run.name, or the results there "
        "would be overwritten"
    )
