"""Snapshots that outlive the learner's own clean-up: those on their way to storage and the endpoint."""

import os
import shutil
from pathlib import Path

from pipeline.weights import MANIFEST_NAME, read_manifest


def start_digest(model_path: str) -> str:
    """The digest of the weights a run starts from; `none` for a model folder without a manifest."""
    folder = Path(model_path)
    return read_manifest(folder).digest if (folder / MANIFEST_NAME).is_file() else "none"


def keep_copy(snapshot: Path, target: Path) -> Path:
    """A copy of a snapshot folder at `target` (hard links: no second set of bytes). A replay's replaces it."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(snapshot, target, copy_function=os.link)
    return target
