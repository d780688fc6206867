"""Write a model folder whose linear layers are on a grid: safetensors, config.json and manifest, as vLLM loads it."""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pipeline.config import UserError
from pipeline.quantization.grid import Grid, compressed, decompressed
from pipeline.quantization.stored import stored_quantisation
from pipeline.weights import MANIFEST_NAME, WEIGHTS_NAME, Manifest, Reference, Snapshot, SnapshotError
from pipeline.weights.names import tied_names
from pipeline.weights.reference import REFERENCE_NAME
from pipeline.weights.sidecars import copy_sidecars, file_digest
from pipeline.weights.snapshot import SERVING_DTYPES
from pipeline.weights.tensors import check_finite, describe, folder_shapes, read_config, read_tensors, weight_files

UNBUILT = (ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError, OSError, ArithmeticError)
HEAD = "lm_head"  # stays as it is, like the embedding it may be tied to


@dataclass(frozen=True)
class Identity:
    """Which weights these are the rounding of, and by which config."""

    version: int = 0
    step: int = 0
    parent: int | None = None
    config_digest: str = ""


def linear_layers(model_dir: Path) -> frozenset[str]:
    """Names of the model's linear layers but for the output head, by its config.json alone: no weight is loaded.
    UserError for a model that is rounded already, that has none, or that transformers cannot build."""
    stored = stored_quantisation(read_config(model_dir))
    if stored is not None:
        raise UserError(f"{model_dir} holds {stored.name} weights already; give the model they were rounded from")
    found = frozenset(name for name, _ in layers_of(_unloaded(model_dir)))
    if not found:
        raise UserError(f"{model_dir} has no linear layers to round")
    return found


def fitting_layers(model_dir: Path, grid: Grid) -> frozenset[str]:
    """`linear_layers` after `check_fit`; no weight is loaded. UserError, too, for tensors of other sizes than
    config.json says."""
    layers, shapes = linear_layers(model_dir), folder_shapes(model_dir)
    for name, tensor in _unloaded(model_dir).state_dict().items():
        if name in shapes and shapes[name] != tuple(tensor.shape):
            raise UserError(
                f"{model_dir}: '{name}' is {list(shapes[name])} in the weights and {list(tensor.shape)} by "
                "config.json; copy the config.json that belongs to these weights"
            )
    check_fit(shapes, layers, grid, model_dir)
    return layers


def _unloaded(model_dir: Path) -> nn.Module:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_dir))
    except (*UNBUILT, StrictDataclassError) as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"{model_dir}/config.json is of no model that transformers can build ({why})") from None


def layers_of(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers that a grid is for: all but the output head."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] != HEAD:
            yield name, module


def check_fit(shapes: Mapping[str, tuple[int, ...]], layers: Iterable[str], grid: Grid, where: object) -> None:
    """UserError that names the first layer which `where` lacks, or whose inputs are no whole number of groups."""
    for layer in sorted(layers):
        shape = shapes.get(f"{layer}.weight")
        if shape is None:
            raise UserError(f"{where} has no tensor '{layer}.weight'; models that fuse their experts are not rounded")
        if shape[1] % (grid.group or 1):
            raise UserError(
                f"'{layer}' has {shape[1]} inputs, no whole number of groups of {grid.group}; choose a group that "
                "divides them, or none for a scale an output"
            )


def folder_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a model folder in turn."""
    for file in weight_files(folder):
        yield from read_tensors(file)


def rounded_tensors(
    tensors: Iterable[tuple[str, Tensor]], layers: frozenset[str], grid: Grid, dtype: torch.dtype
) -> dict[str, Tensor]:
    """What goes into the file: the layers' weights by their stored names, everything else in `dtype`. SnapshotError
    for NaN and infinity."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors:
        check_finite(name, tensor)
        layer, _, leaf = name.rpartition(".")
        if leaf == "weight" and layer in layers:
            found |= {f"{layer}.{part}": value.contiguous() for part, value in compressed(tensor, grid).items()}
        else:
            found[name] = tensor.detach().to("cpu", dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
    return found


def write_rounded(
    folder: Path,
    tensors: Iterable[tuple[str, Tensor]],
    grid: Grid,
    *,
    model_dir: Path,
    layers: frozenset[str],
    identity: Identity,
    reference: Reference | None = None,
    report: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Round `tensors` (name, float values; a tied output head left out) and write the folder, which must not exist; it
    appears by one rename. Configuration and tokenizer come from `model_dir`, and the type of what is not rounded;
    `report` becomes quantization.json."""
    if folder.exists():
        raise SnapshotError(f"{folder} exists; give a folder of its own")
    stated = str(read_config(model_dir).get("dtype") or read_config(model_dir).get("torch_dtype"))
    dtype = stated if stated in SERVING_DTYPES else "bfloat16"
    temporary = folder.parent / f".{folder.name}.tmp-{uuid.uuid4().hex[:8]}"
    temporary.mkdir(parents=True)
    try:
        stored = rounded_tensors(tensors, layers, grid, SERVING_DTYPES[dtype])
        files = _side_files(temporary, model_dir, grid, dtype, reference, report)
        save_file(stored, temporary / WEIGHTS_NAME, metadata={"format": "pt"})
        entries = {name: describe(tensor) for name, tensor in stored.items()}
        tied = tied_names({**entries, f"{HEAD}.weight": ()}, bool(read_config(model_dir).get("tie_word_embeddings")))
        manifest = Manifest(
            identity.version, identity.parent, identity.step, identity.config_digest, entries, tied, files
        )
        (temporary / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
        os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Snapshot(identity.version, str(folder), manifest)


def _side_files(
    folder: Path,
    model_dir: Path,
    grid: Grid,
    dtype: str,
    reference: Reference | None,
    report: Mapping[str, Any] | None,
) -> dict[str, str]:
    copy_sidecars(model_dir, folder, dtype)
    config = {**read_config(folder), "quantization_config": grid.config([HEAD])}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if reference is not None:
        (folder / REFERENCE_NAME).write_text(reference.to_json(), encoding="utf-8")
    if report is not None:
        (folder / "quantization.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    return {path.name: file_digest(path) for path in sorted(folder.iterdir())}


def load_rounded(model: nn.Module, folder: Path, grid: Grid) -> None:
    """Put the stored weights of a folder that `write_rounded` made into `model`, in place, as the values they stand
    for. SnapshotError for a layer that the folder lacks."""
    stored = dict(folder_tensors(folder))
    state = dict(model.state_dict())
    with torch.no_grad():
        for name, layer in layers_of(model):
            parts = {key.rpartition(".")[2]: stored.pop(key) for key in list(stored) if key.rpartition(".")[0] == name}
            if "weight_scale" not in parts:
                raise SnapshotError(f"{folder} holds no rounded weights of layer '{name}'")
            if "bias" in parts:
                layer.bias.copy_(parts.pop("bias"))
            layer.weight.copy_(decompressed(parts, grid))
        for name, tensor in stored.items():
            state[name].copy_(tensor)
