"""From an entry to problems: rows from the hub or a file of the same schema, checked and with an identity."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.config import Columns, RunConfig, Source, UserError, nearest, resolve_path
from pipeline.evaluation.suites.catalogue import SUITES
from pipeline.evaluation.suites.suite import Raw, Suite
from pipeline.problems import Problem, load_problems
from pipeline.problems.load import checked
from pipeline.problems.rows import Row, column_names, look_up, rows_to_problems
from pipeline.problems.sources import RAW
from pipeline.problems.tiny import FAMILIES

log = logging.getLogger(__name__)
FILES = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
TINY_SIZE = 100  # problems a family, where the config names none


def find_suite(name: str) -> Suite:
    """The entry called `name`; UserError with the nearest name when there is none."""
    if name not in SUITES:
        raise UserError(f"there is no suite '{name}'{nearest(name, SUITES)}")
    return SUITES[name]


def load_suite(suite: Suite, cfg: RunConfig, file: str | None = None) -> list[Problem]:
    """The suite's problems, from `file` (jsonl or parquet with the data set's columns) or else from the hub.

    The tiny world is generated: its families as in `problems.held_out`, and those that are not there. UserError: no
    such file or set, columns that are missing (wanted and found are listed), rows that cannot be used.
    """
    check_suite_file(suite, file)
    if not suite.hub:
        return load_problems(tiny_sources(cfg), cfg.run.seed)
    source = _source(suite, file)
    where = file or f"{suite.hub} ({suite.split})"
    raw = RAW[source.kind](source)
    _check_columns(raw, suite, where)
    problems = checked(_rows(raw, suite, source, where))
    if suite.problems and len(problems) != suite.problems:
        log.warning("%s has %d problems; the paper used %d", where, len(problems), suite.problems)
    return problems


def check_suite_file(suite: Suite, file: str | None) -> None:
    """UserError where `file` (None: from the hub) cannot hold the suite's rows; it is not read."""
    if file is None:
        return
    if not suite.hub:
        raise UserError(f"the suite '{suite.name}' is generated and takes no --suite-file")
    if Path(file).suffix.lower() not in FILES:
        raise UserError(f"--suite-file {file} is neither .jsonl nor .parquet; save it as one of these")
    if not resolve_path(file).is_file():
        raise UserError(f"--suite-file {file}: there is no such file; correct the path")


def tiny_sources(cfg: RunConfig) -> list[Source]:
    """All three families, held out: each as the config has it, else as many as its largest other one."""
    given = [s for s in cfg.problems.held_out if s.kind == "tiny" and s.split == "held_out"]
    size = max((s.size or 0 for s in given), default=TINY_SIZE)
    names = {s.name for s in given}
    return [*given, *(Source(name=name, split="held_out", size=size) for name in FAMILIES if name not in names)]


def suite_digest(problems: Sequence[Problem], suffix: str) -> str:
    """sha256 (hex) over what is asked and what counts as right: ids, prompts, suffix and answers, in order."""
    total = hashlib.sha256(json.dumps(suffix).encode())
    for problem in problems:
        total.update(json.dumps([problem.id, problem.prompt, problem.gold]).encode() + b"\n")
    return total.hexdigest()


def spread(problems: Sequence[Problem], limit: int | None) -> list[Problem]:
    """`limit` of the problems at even distances, so that every source keeps its part; None: all of them."""
    if limit is None or limit >= len(problems):
        return list(problems)
    return [problems[index * len(problems) // limit] for index in range(limit)]


def _source(suite: Suite, file: str | None) -> Source:
    columns = Columns(prompt=suite.prompt, gold=suite.gold, id=suite.id)
    if file is None:
        options = {"config": suite.subset} if suite.subset else {}
        return Source(kind="hub", name=suite.hub, split=suite.split, columns=columns, options=options)
    kind = FILES[Path(file).suffix.lower()]
    return Source(kind=kind, name=suite.name, path=file, split=suite.split, columns=columns)


def _check_columns(raw: Sequence[Raw], suite: Suite, where: str) -> None:
    if not raw:
        raise UserError(f"{where} holds no rows")
    there = set(column_names(raw)) | {column for row in raw for column in row}
    wanted = [c for c in (suite.prompt, suite.gold, suite.id, *suite.needs) if c]
    if lacking := [column for column in wanted if column not in there]:
        raise UserError(
            f"{where} is not a file of '{suite.name}': no column {', '.join(lacking)}; "
            f"found: {', '.join(sorted(there))}; rename its columns"
        )


def _rows(raw: Sequence[Raw], suite: Suite, source: Source, where: str) -> list[Row]:
    kept = [(row, adapted) for row in raw if (adapted := suite.adapt(row)) is not None]
    if len(kept) < len(raw):
        log.warning("%s: %d of %d rows are left out (several answers)", where, len(raw) - len(kept), len(raw))
    found = rows_to_problems([adapted for _, adapted in kept], source, where)
    return [replace(row, problem=_named(row.problem, suite, kept[row.index][0])) for row in found]


def _named(problem: Problem, suite: Suite, raw: Raw) -> Problem:
    level = look_up(raw, suite.level) if suite.level else None
    stated = {"level": _level(level)} if isinstance(level, str | int | float) and str(level).strip() else {}
    return replace(
        problem,
        id=f"{suite.name}/{problem.id}",
        source=suite.name,
        meta={**problem.meta, **stated, **suite.meta(raw)},
    )


def _level(level: str | float) -> str:
    return level.strip() if isinstance(level, str) else f"level {level:g}"
