"""Snapshots that outlive the learner's own clean-up: those on their way to storage and the endpoint."""

import os
import shutil
from pathlib import Path


def keep_copy(snapshot: Path, target: Path) -> Path:
    """A copy of a snapshot folder at `target` (hard links: no second set of bytes). A replay's replaces it."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(snapshot, target, copy_function=os.link)
    return target
