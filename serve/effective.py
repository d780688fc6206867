"""What was asked of an endpoint beside what runs: two mappings become the rows of a table. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = "(not told)"


@dataclass(frozen=True)
class Row:
    """One option by its dotted name. `differs`: it was asked for, and something else runs."""

    name: str
    requested: Any
    effective: Any
    differs: bool


def compare(requested: Mapping[str, Any], effective: Mapping[str, Any]) -> list[Row]:
    """A row for each option of either side, those that differ first, then by name.

    Nested mappings are compared by their parts. A requested None leaves the choice to the engine and never differs; an
    option that was asked for and that the engine does not tell of does, because nobody can say that it took effect.
    2 and 2.0 are equal, true and 1 are not, and neither are a text and a number that looks like it.
    """
    asked, found = _flat(requested), _flat(effective)
    rows = []
    for name in asked.keys() | found.keys():
        want, have = asked.get(name), found.get(name, ABSENT)
        rows.append(Row(name, want, have, want is not None and not _same(want, have)))
    return sorted(rows, key=lambda row: (not row.differs, row.name))


def differences(rows: Iterable[Row]) -> list[Row]:
    """The rows that differ."""
    return [row for row in rows if row.differs]


def table(rows: Iterable[Row]) -> str:
    """The rows as text, `!` before those that differ, and a last line that counts them."""
    rows = list(rows)
    cells = [("", "option", "requested", "effective")]
    cells += [("!" if row.differs else "", row.name, _text(row.requested), _text(row.effective)) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    count = len(differences(rows))
    verdict = f"{count} of {len(rows)} options did not take effect" if count else "all that was asked for is in effect"
    return "\n".join([*lines, verdict])


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{key}.")
        else:
            flat[key] = value
    return flat


def _same(want: Any, have: Any) -> bool:
    if isinstance(want, bool) or isinstance(have, bool):
        return want is have
    if isinstance(want, list | tuple) and isinstance(have, list | tuple):
        return len(want) == len(have) and all(_same(a, b) for a, b in zip(want, have, strict=True))
    return want == have


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
