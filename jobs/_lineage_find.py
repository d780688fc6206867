"""Where versions are: the registry, the results folder, the model folder. And whether their weights are still whole."""

import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jobs._lineage_query import Found, from_manifest, from_registry, merged
from pipeline.config import RunConfig, UserError, results_root
from pipeline.evaluation.model import fetch
from pipeline.storage import StorageError
from pipeline.tracking import Provenance
from pipeline.weights import MANIFEST_NAME, Manifest, SnapshotError, read_manifest

logger = logging.getLogger(__name__)

PLACES = ("*/published/v*", "*/snapshots/v*", "*/weights/v*", "endpoint/*")


@dataclass(frozen=True)
class Checked:
    """`state`: confirmed (every byte read), damaged, or missing; `detail` says why for the last two."""

    state: str
    detail: str = ""
    manifest: Manifest | None = None


def known_versions(cfg: RunConfig, store: Provenance) -> list[Found]:
    """Every version that is registered, or kept in the results folder, or is the model folder itself."""
    return merged([from_registry(one) for one in store.versions()], local_versions(cfg))


def local_versions(cfg: RunConfig) -> Iterator[Found]:
    """Snapshots in the results folder and `model.path`; folders without a whole manifest are no snapshots."""
    root = results_root(cfg)
    folders = [path for place in PLACES for path in sorted(root.glob(place), reverse=True)]
    for folder in [*folders, Path(cfg.model.path)]:
        if (folder / MANIFEST_NAME).is_file():
            try:
                found = from_manifest(str(folder), read_manifest(folder))
            except SnapshotError as error:
                logger.warning("passed over: %s", error)
                continue
            yield replace(found, run_id=_run_of(folder.parent.parent))


def _run_of(run_folder: Path) -> str | None:
    path = run_folder / "result.json"
    if not path.is_file():
        return None
    return json.loads(path.read_text(encoding="utf-8")).get("mlflow_run_id")


def check_weights(cfg: RunConfig, found: Found) -> Checked:
    """Reads every byte of the snapshot and compares it with its manifest and with the digest it is known by."""
    if "://" not in found.uri:
        if not (Path(found.uri) / MANIFEST_NAME).is_file():
            return Checked("missing", f"{found.uri} is not there (moved, pruned, or on another machine)")
        return _verified(Path(found.uri), found)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            fetch(found.uri, cfg, Path(scratch) / "snapshot")
            return _verified(Path(scratch) / "snapshot", found)
    except (UserError, StorageError) as error:
        return Checked("missing", str(error))


def _verified(folder: Path, found: Found) -> Checked:
    from pipeline.weights import verify  # torch is needed from here on only

    try:
        manifest = verify(folder, expect=found.digest)
    except (SnapshotError, OSError) as error:
        return Checked("damaged", str(error))
    if manifest.version != found.version:
        return Checked("damaged", f"{folder} holds version {manifest.version}, not {found.version}")
    return Checked("confirmed", manifest=manifest)
