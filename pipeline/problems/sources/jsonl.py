"""JSON lines: one object a line, UTF-8; empty lines are passed over."""

import json

from pipeline.config import Source, UserError
from pipeline.problems.rows import Row, rows_to_problems
from pipeline.problems.sources.files import find, first_rows


def read(source: Source, seed: int) -> list[Row]:
    """Rows of the file, in its order; `seed` plays no part."""
    file = find(source)
    rows: list[dict] = []
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:  # only \n ends a row: text may hold other breaks
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    rows.append(_object(line, f"{source.path} line {number}"))
    except UnicodeDecodeError as error:
        raise UserError(f"{source.path} is not UTF-8 text ({error.reason}); save it as UTF-8") from None
    where = str(source.path)
    return rows_to_problems(first_rows(rows, source, where), source, where)


def _object(line: str, where: str) -> dict:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{where} is not a JSON object; write one object with prompt and answer a line")
    return value
