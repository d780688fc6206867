"""From the rows of a table to problems: columns mapped by name, answers as text, nothing guessed."""

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pipeline.config import Columns, Source, UserError
from pipeline.problems.problem import Problem

log = logging.getLogger(__name__)

# Names that data sets use for the same thing; only to tell the reader which of several was taken.
TYPICAL = {
    "prompt": ("prompt", "problem", "question", "query", "input", "messages"),
    "gold": ("gold", "answer", "solution", "ground_truth", "final_answer", "target", "reward_model.ground_truth"),
}
_MISSING = object()


@dataclass(frozen=True)
class Row:
    """A problem and where it was read: `where` names the file or data set, `index` counts from 0."""

    problem: Problem
    where: str
    index: int
    bad_rows: str


def listed(indices: Sequence[int]) -> str:
    """`rows 0, 3, 4, 7, 9 and 12 more (17 in all, counted from 0)`."""
    shown = ", ".join(str(index) for index in indices[:5])
    if len(indices) == 1:
        return f"row {shown} (counted from 0)"
    more = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
    return f"rows {shown}{more} ({len(indices)} in all, counted from 0)"


def look_up(row: Mapping[str, object], column: str) -> object:
    """The value under `column`: a column of that very name, else nested fields along the dots."""
    if column in row:
        return row[column]
    value: object = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


def column_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """All columns of `rows`, nested ones dotted."""
    names: dict[str, None] = {}

    def visit(row: Mapping[str, object], above: str) -> None:
        for key, value in row.items():
            if isinstance(value, Mapping):
                visit(value, f"{above}{key}.")
            else:
                names.setdefault(f"{above}{key}")

    for row in rows:
        visit(row, "")
    return list(names)


def prompt_text(value: object) -> str | None:
    """A prompt given as text, or as a message list: then the text of the last user turn. None when there is none."""
    if isinstance(value, str):
        return value if value.strip() else None
    if not isinstance(value, Sequence):
        return None
    turns = [turn for turn in value if isinstance(turn, Mapping) and turn.get("role") == "user"]
    content = turns[-1].get("content") if turns else None
    if isinstance(content, list):  # parts: [{"type": "text", "text": ...}]
        texts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) and content.strip() else None


def gold_text(value: object) -> str | None:
    """An answer as text; whole numbers lose a trailing `.0`. None for all that is neither text nor a number."""
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return None


def _is_text(text: str) -> bool:
    """Whether `text` can be written: JSON may escape one half of a pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def stable_id(source: str, prompt: str, gold: str) -> str:
    """16 hex digits that depend on nothing else."""
    return hashlib.sha256(json.dumps([source, prompt, gold]).encode()).hexdigest()[:16]


def rows_to_problems(rows: Sequence[Mapping[str, object]], source: Source, where: str) -> list[Row]:
    """Map `rows` by `source.columns`. Raises UserError for unknown columns and, unless `source.bad_rows` is drop,
    for rows without a usable prompt, answer or id."""
    _check_columns(rows, source.columns, where)
    good: list[Row] = []
    bad: dict[str, list[int]] = {"prompt": [], "gold": [], "id": [], "text": []}
    for index, row in enumerate(rows):
        prompt = prompt_text(look_up(row, source.columns.prompt))
        gold = gold_text(look_up(row, source.columns.gold))
        if prompt is None or gold is None:
            bad["prompt" if prompt is None else "gold"].append(index)
            continue
        given = gold_text(look_up(row, source.columns.id)) if source.columns.id else None
        if source.columns.id and given is None:
            bad["id"].append(index)
            continue
        if not all(map(_is_text, (prompt, gold, given or ""))):
            bad["text"].append(index)
            continue
        problem_id = given or stable_id(source.name, prompt, gold)
        problem = Problem(problem_id, prompt, gold, source.name, {"row": index, "split": source.split})
        good.append(Row(problem, where, index, source.bad_rows))
    _report_bad(bad, source, where)
    return good


def _check_columns(rows: Sequence[Mapping[str, object]], columns: Columns, where: str) -> None:
    wanted = {"prompt": columns.prompt, "gold": columns.gold, "id": columns.id}
    found = column_names(rows)
    lacking = [
        f"columns.{part}={name}"
        for part, name in wanted.items()
        if name and all(look_up(row, name) is _MISSING for row in rows)
    ]
    if rows and lacking:
        raise UserError(
            f"{where}: no column for {', '.join(lacking)}; found: {', '.join(found)}; "
            "set the source's columns to the names that hold prompt and answer"
        )
    for part, typical in TYPICAL.items():
        others = [name for name in typical if name in found and name != wanted[part]]
        if others:
            log.info("%s: %s is read from '%s'; also there: %s", where, part, wanted[part], ", ".join(others))


def _report_bad(bad: Mapping[str, Sequence[int]], source: Source, where: str) -> None:
    what = {
        "prompt": "no prompt text (empty, or no user turn)",
        "gold": "no answer (empty, or neither text nor a number)",
        "id": "no id",
        "text": "a prompt, answer or id that is no text (half of a surrogate pair, such as \\ud83e)",
    }
    for part, indices in bad.items():
        if not indices:
            continue
        place = f" in column '{getattr(source.columns, part)}'" if part != "text" else ""
        message = f"{where}: {what[part]}{place} of {listed(indices)}"
        if source.bad_rows == "error":
            raise UserError(f"{message}; mend them, or set the source's bad_rows to drop")
        log.warning("%s; dropped", message)
