"""The weights an endpoint starts with: a snapshot, or a plain model folder made into one."""

import shutil
import tempfile
from pathlib import Path

from pipeline.config import RunConfig, UserError, check_model_folder, config_digest
from pipeline.weights import MANIFEST_NAME, Snapshot, folder_reference, read_manifest
from serve.policy import Policy

REFERENCE_LIMIT = 500_000_000  # bytes of weights; the log-probs of a larger model are not computed on this machine


def first_policy(cfg: RunConfig, home: Path) -> Policy:
    """What an endpoint of `cfg` starts with: the snapshot at `model.path`, or the one made of it under `home`.
    UserError when there is no model."""
    snapshot = as_snapshot(check_model_folder(cfg.model.path), home, cfg)
    return Policy(snapshot.version, snapshot.uri, snapshot.manifest.digest, cfg.serve.swap_mode)


def as_snapshot(folder: Path, home: Path, cfg: RunConfig) -> Snapshot:
    """`folder` itself when it is a snapshot; else version 0 written under `home`, so that these weights too have an
    identity that replicas can confirm and return to. Named by its digest: the same model is written once."""
    if (folder / MANIFEST_NAME).is_file():
        manifest = read_manifest(folder)
        return Snapshot(manifest.version, str(folder), manifest)
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".base-", dir=home))
    try:
        written = _write_base(folder, scratch / "base", cfg)
        target = home / f"base-{written.manifest.digest[:12]}"
        if not target.exists():
            (scratch / "base").rename(target)
        return Snapshot(0, str(target), read_manifest(target))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_base(folder: Path, target: Path, cfg: RunConfig) -> Snapshot:
    from pipeline.weights import read_tensors, write_snapshot  # torch is needed from here on only

    files = sorted(folder.glob("*.safetensors"))
    tensors = {name: tensor for file in files for name, tensor in read_tensors(file)}
    if not tensors:
        raise UserError(f"model.path: {folder} has no *.safetensors; save the model in that format first")
    small = sum(file.stat().st_size for file in files) <= REFERENCE_LIMIT
    return write_snapshot(
        target,
        tensors,
        version=0,
        step=0,
        parent=None,
        config_digest=config_digest(cfg),
        serving_dtype=cfg.engine.dtype,
        model_dir=folder,
        reference=folder_reference(folder) if small else None,
    )
