"""Weights: snapshots with an identity. Written whole and checked before use.

The manifest's names need no torch; everything else is imported when it is first asked for.
"""

import importlib
from typing import TYPE_CHECKING

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
from pipeline.weights.reference import Reference, folder_reference, make_reference, model_reference, read_reference

if TYPE_CHECKING:
    from pipeline.weights.names import canonical, check_names, map_names
    from pipeline.weights.sidecars import check_tokenizer
    from pipeline.weights.snapshot import write_snapshot
    from pipeline.weights.tensors import describe, read_tensors
    from pipeline.weights.verification import verify

_WITH_TORCH = {
    "canonical": "names",
    "check_names": "names",
    "map_names": "names",
    "check_tokenizer": "sidecars",
    "write_snapshot": "snapshot",
    "describe": "tensors",
    "read_tensors": "tensors",
    "verify": "verification",
}

__all__ = [
    "MANIFEST_NAME",
    "WEIGHTS_NAME",
    "Manifest",
    "Reference",
    "Snapshot",
    "SnapshotError",
    "TensorEntry",
    "canonical",
    "check_names",
    "check_tokenizer",
    "describe",
    "folder_reference",
    "make_reference",
    "model_reference",
    "map_names",
    "read_manifest",
    "read_reference",
    "read_tensors",
    "tensors_digest",
    "verify",
    "write_snapshot",
]


def __getattr__(name: str) -> object:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
    globals()[name] = value
    return value
