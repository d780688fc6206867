"""Write a snapshot: a complete model folder that any server can load, with a manifest."""

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from pipeline.weights.manifest import (
    MANIFEST_NAME,
    WEIGHTS_NAME,
    Manifest,
    Snapshot,
    SnapshotError,
    TensorEntry,
    read_manifest,
    tensors_digest,
)
from pipeline.weights.names import check_names, map_names, tied_names
from pipeline.weights.reference import REFERENCE_NAME, Reference
from pipeline.weights.sidecars import copy_sidecars
from pipeline.weights.tensors import check_finite, describe, folder_shapes, read_config

SERVING_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def write_snapshot(
    folder: str | Path,
    state_dict: Mapping[str, torch.Tensor],
    *,
    version: int,
    step: int,
    parent: int | None,
    config_digest: str,
    serving_dtype: str,
    model_dir: str | Path,
    reference: Reference | None = None,
) -> Snapshot:
    """Write `state_dict` (whole tensors, any known wrapper prefixes) as a model folder and return its identity.

    Floating tensors are cast to `serving_dtype`; a tied output head is compared with its embedding and left out.
    Names and shapes must be those of the safetensors in `model_dir` (a folder without weights is not compared).
    Configuration, tokenizer and chat template are copied from there; `reference` goes with them. The folder appears by
    one rename, so it is whole or absent. Writing the same version with equal weights again changes nothing; the same
    folder with other weights or another version is a SnapshotError, as are NaN, placeholders and names that do not fit.
    """
    folder, model_dir = Path(folder), Path(model_dir)
    _check_identity(version, parent, serving_dtype)
    tensors, tied = prepare_tensors(state_dict, model_dir, SERVING_DTYPES[serving_dtype])
    entries = {name: describe(tensor) for name, tensor in tensors.items()}
    written = _existing(folder, version, entries)
    if written is None:
        temporary = folder.parent / f".{folder.name}.tmp-{uuid.uuid4().hex[:8]}"
        temporary.mkdir(parents=True)
        try:
            if reference is not None:
                (temporary / REFERENCE_NAME).write_text(reference.to_json(), encoding="utf-8")
            files = copy_sidecars(model_dir, temporary, serving_dtype)
            save_file(tensors, temporary / WEIGHTS_NAME, metadata={"format": "pt"})
            manifest = Manifest(version, parent, step, config_digest, entries, tied, files)
            (temporary / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
            written = _appear(temporary, folder, manifest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return Snapshot(version, str(folder), written)


def prepare_tensors(
    state_dict: Mapping[str, torch.Tensor], model_dir: Path, dtype: torch.dtype
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """(tensors to write, tied names): canonical names checked against the model folder, cast, finite, on the CPU."""
    expected = folder_shapes(model_dir)
    mapped = map_names(state_dict, expected)
    tied = tied_names({**expected, **mapped}, _is_tied(model_dir, expected))
    for head, source in tied.items():
        if head in mapped and source in mapped and not torch.equal(mapped[head], mapped[source]):
            raise SnapshotError(f"config.json ties '{head}' to '{source}' but their values differ")
    kept = {name: tensor for name, tensor in mapped.items() if name not in tied}
    if expected:
        check_names(kept, {name: shape for name, shape in expected.items() if name not in tied})
    if not kept:
        raise SnapshotError("the state dict holds no tensors")
    return {name: _cast(name, tensor, dtype) for name, tensor in kept.items()}, tied


def _cast(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A copy of its own (safetensors refuses shared memory), finite after the cast."""
    target = dtype if tensor.is_floating_point() else tensor.dtype
    cast = tensor.detach().to(device="cpu", dtype=target, copy=True).contiguous()
    check_finite(name, cast)
    return cast


def _is_tied(model_dir: Path, expected: Mapping[str, object]) -> bool:
    """What config.json says; where it is silent, whether the weights there lack an output head."""
    stated = read_config(model_dir).get("tie_word_embeddings")
    if stated is not None:
        return bool(stated)
    return bool(expected) and not any(name.endswith("lm_head.weight") for name in expected)


def _check_identity(version: int, parent: int | None, serving_dtype: str) -> None:
    if version < 0 or (parent is not None and not 0 <= parent < version):
        raise SnapshotError(f"snapshot version {version} with parent {parent}: versions only grow, from 0")
    if serving_dtype not in SERVING_DTYPES:
        raise SnapshotError(f"serving dtype '{serving_dtype}' is not one of {', '.join(SERVING_DTYPES)}")


def _existing(folder: Path, version: int, entries: Mapping[str, TensorEntry]) -> Manifest | None:
    """The manifest already in `folder` if it is the same snapshot; None if the folder is absent or empty."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    written = read_manifest(folder)
    if written.version != version:
        raise SnapshotError(f"{folder} holds version {written.version}, not {version}; write to a folder of its own")
    if written.digest != tensors_digest(entries):
        raise SnapshotError(
            f"{folder} holds version {version} with digest {written.digest[:12]}, "
            f"the new weights have {tensors_digest(entries)[:12]}; a version never changes"
        )
    return written


def _appear(temporary: Path, folder: Path, manifest: Manifest) -> Manifest:
    """Rename into place once the bytes are on disk; another writer that was faster must have written the same."""
    for path in temporary.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    try:
        os.rename(temporary, folder)
    except OSError:
        faster = _existing(folder, manifest.version, manifest.tensors)
        if faster is None:
            raise
        return faster
    return manifest
