"""What file sources share: finding the file and taking the first rows."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.config import Source, UserError, resolve_path


def find(source: Source) -> Path:
    """The file of `source`. Raises UserError when there is none."""
    file = resolve_path(source.path or "")
    if file.is_dir():
        raise UserError(f"the {source.kind} file at {source.path} is a folder; give a file, one source for each")
    if not file.is_file():
        raise UserError(f"no {source.kind} file at {source.path} (looked for {file}); correct the source's path")
    return file


def check_size(have: int, source: Source, where: str) -> None:
    """Raises UserError when `source.size` asks for more rows than there are."""
    if source.size is not None and have < source.size:
        raise UserError(f"{where} has {have} rows, size asks for {source.size}; lower size, or leave it out for all")


def first_rows(rows: Sequence[dict], source: Source, where: str) -> Sequence[dict]:
    """The first `source.size` rows (None: all)."""
    check_size(len(rows), source, where)
    return rows[: source.size]
