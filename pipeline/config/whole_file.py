"""Files that others read while they are replaced."""

import uuid
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Makes `path`, in a folder that is there, hold `text` in one step: a reader, or a later start, finds what was
    there before or all of it. OSError where it cannot be written; nothing else is left behind then."""
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
