"""From the names a trainer gives its parameters to those in the model folder, and never a silent skip."""

from collections.abc import Mapping

import torch

from pipeline.config import nearest
from pipeline.weights.manifest import SnapshotError

PREFIXES = ("module.", "base_model.model.", "_orig_mod.")  # data-parallel, adapter and compile wrappers
HEADS = ("lm_head.weight", "embed_out.weight")
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")


def canonical(name: str) -> str:
    """`name` without wrapper prefixes (in any number and order) and without an adapter's `.base_layer`."""
    while True:
        stripped = name
        for prefix in PREFIXES:
            stripped = stripped.removeprefix(prefix)
        if stripped == name:
            return name.replace(".base_layer.", ".")
        name = stripped


def map_names(tensors: Mapping[str, torch.Tensor], known: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """`tensors` under canonical names; a name in `known` stays as it is.

    SnapshotError that names the parameter for a tensor without values (a sharded trainer's placeholder) and for
    two that map to one name.
    """
    mapped: dict[str, torch.Tensor] = {}
    origin: dict[str, str] = {}
    for name, tensor in tensors.items():
        _check_whole(name, tensor)
        target = name if name in known else canonical(name)
        if target in mapped:
            raise SnapshotError(f"parameters '{origin[target]}' and '{name}' both map to '{target}'")
        mapped[target], origin[target] = tensor, name
    return mapped


def check_names(tensors: Mapping[str, torch.Tensor], expected: Mapping[str, tuple[int, ...]]) -> int:
    """Count of tensors, after checking that names and shapes are exactly the expected ones.

    SnapshotError that names the first unknown, missing or mis-shaped parameter.
    """
    for name, tensor in tensors.items():
        if name not in expected:
            raise SnapshotError(f"parameter '{name}' is unknown to the model{_close(name, expected)}")
        if tuple(tensor.shape) != tuple(expected[name]):
            raise SnapshotError(
                f"parameter '{name}' has shape {list(tensor.shape)}, the model needs {list(expected[name])}"
            )
    missing = sorted(expected.keys() - tensors.keys())
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SnapshotError(f"parameter '{missing[0]}'{more} is missing")
    return len(tensors)


def tied_names(names: Mapping[str, object], tied: bool) -> dict[str, str]:
    """{output head: embedding} where the model ties them and both are among `names`; SnapshotError if a head has no
    embedding to share with."""
    heads = [name for name in names if name in HEADS or name.endswith(tuple("." + head for head in HEADS))]
    if not tied or not heads:
        return {}
    embeddings = [name for name in names if name.endswith(EMBEDDINGS)]
    if len(embeddings) != 1:
        raise SnapshotError(f"'{heads[0]}' is tied but {len(embeddings)} embeddings were found ({embeddings})")
    return {head: embeddings[0] for head in heads}


def _check_whole(name: str, tensor: torch.Tensor) -> None:
    if tensor.is_meta or tensor.numel() == 0:
        full = getattr(tensor, "ds_shape", None)
        hint = f"a placeholder for shape {list(full)}; gather it first" if full is not None else "gather it first"
        raise SnapshotError(f"parameter '{name}' has no values ({list(tensor.shape)}): {hint}")


def _close(name: str, expected: Mapping[str, object]) -> str:
    text = nearest(name, expected)
    return text if text.startswith("; did you mean") else ""
