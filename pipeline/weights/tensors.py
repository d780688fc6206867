"""Digests, finiteness and headers of tensors; safetensors only, so reading never runs code."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from pipeline.weights.manifest import SnapshotError, TensorEntry

SAFETENSORS_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


def dtype_name(dtype: torch.dtype) -> str:
    """ "bfloat16" for torch.bfloat16."""
    return str(dtype).removeprefix("torch.")


def describe(tensor: torch.Tensor) -> TensorEntry:
    """Entry of a tensor of any shape and device; the digest is of its values in row-major order."""
    values = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return TensorEntry(dtype_name(tensor.dtype), tuple(tensor.shape), hashlib.sha256(values.numpy()).hexdigest())


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """SnapshotError if a floating tensor holds NaN or infinity."""
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        raise SnapshotError(f"tensor '{name}' holds NaN or infinity")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, sorted; empty if there are none."""
    return sorted(folder.glob("*.safetensors"))


def read_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """name -> (dtype, shape) of a safetensors file. SnapshotError if it is missing, truncated or not one."""
    with _opened(path) as weights:
        header = {}
        for name in weights.keys():
            part = weights.get_slice(name)
            header[name] = (SAFETENSORS_DTYPES.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape()))
        return header


def read_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor of a safetensors file in turn, on the CPU; one is held at a time."""
    with _opened(path) as weights:
        for name in weights.keys():
            yield name, weights.get_tensor(name)


def folder_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """name -> shape over all safetensors files of a model folder; empty if it has none."""
    return {name: shape for path in weight_files(folder) for name, (_, shape) in read_header(path).items()}


def read_config(folder: Path) -> dict[str, object]:
    """config.json of a model folder; SnapshotError if it is missing or not JSON."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SnapshotError(f"{folder} is no model folder: config.json is missing") from error
    except ValueError as error:
        raise SnapshotError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise SnapshotError(f"{path} is not a JSON object")
    return config


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except FileNotFoundError as error:
        raise SnapshotError(f"{path} is missing") from error
    except (SafetensorError, OSError) as error:
        raise SnapshotError(f"{path} is truncated or not a safetensors file ({error})") from error
