"""JSON lines: one object a line, UTF-8; empty lines are passed over."""

import json
from collections.abc import Sequence

from pipeline.config import Source, UserError
from pipeline.problems.rows import Row, rows_to_problems
from pipeline.problems.sources.files import find, first_rows


def read(source: Source, seed: int) -> list[Row]:
    """Problems of the file, in its order; `seed` plays no part."""
    return rows_to_problems(raw_rows(source), source, str(source.path))


def raw_rows(source: Source) -> Sequence[dict]:
    """The file's objects as they are, the first `source.size` of them."""
    file = find(source)
    rows: list[dict] = []
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:  # only \n ends a row: text may hold other breaks
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    rows.append(_object(line, f"{source.path} line {number}"))
    except UnicodeDecodeError as error:
        raise UserError(f"{source.path} is not UTF-8 text ({error.reason}); save it as UTF-8") from None
    return first_rows(rows, source, str(source.path))


def _object(line: str, where: str) -> dict:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{where} is not a JSON object; write one object with prompt and answer a line")
    return value
