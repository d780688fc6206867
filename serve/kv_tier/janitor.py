"""Keeps a path tidy: roots of weights that no engine serves any more, and parts that were never finished.

An engine marks the root it uses by touching the folder; a sibling (same engine digest, other weights) that nobody has
touched for some time is an old version and goes. Roots of other engine digests are another endpoint's affair: only the
quota, which evicts what was least recently used, reaches them.
"""

import os
import shutil
import time
import uuid
from pathlib import Path

from serve.kv_tier.quota import PARTS, Quota, stored_files

IDLE_S = 120.0  # since any engine marked a root
PERIOD_S = 10.0
PART_S = 600.0  # since a part was begun


def mark_used(folder: Path) -> None:
    """This root is in use."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.utime(folder)


def old_roots(marks: dict[str, float], mine: str, now: float, idle_s: float = IDLE_S) -> list[str]:
    """The names of the roots to remove, of all siblings with the time each was last marked (seconds)."""
    return sorted(name for name, marked in marks.items() if name != mine and now - marked > idle_s)


def tidy(quota: Quota, root: str, idle_s: float = IDLE_S) -> int:
    """Marks `root`, removes its old siblings and parts left behind, counts anew. Returns how many roots went."""
    mine = quota.path / root
    quota.make_folders()
    vanished = not mine.is_dir()
    mark_used(mine)
    gone = old_roots(_marks(mine.parent), mine.name, time.time(), idle_s)
    for name in gone:
        _remove_folder(mine.parent / name)
    left = [file for file in stored_files(quota.path / PARTS) if time.time() - file.used_ns / 1e9 > PART_S]
    for file in left:
        file.path.unlink(missing_ok=True)
    if gone or left or vanished:
        quota.recount()
    return len(gone)


def _marks(folder: Path) -> dict[str, float]:
    marks = {}
    for entry in os.scandir(folder):
        try:
            if entry.is_dir(follow_symlinks=False):
                marks[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        except FileNotFoundError:
            continue
    return marks


def _remove_folder(folder: Path) -> None:
    aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")  # at once for readers; the files take longer
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return  # another engine's janitor was here first
    shutil.rmtree(aside, ignore_errors=True)
