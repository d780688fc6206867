"""Weights to swap between: those served and a slightly changed copy, under rising versions; and broken snapshots."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import RunConfig, config_digest
from pipeline.weights import MANIFEST_NAME, WEIGHTS_NAME, Manifest, Snapshot, read_manifest

if TYPE_CHECKING:
    import torch

NOISE = 0.01  # of a tensor's own spread: other replies, still a sensible model


class Alternating:
    """Snapshots under `home` of the weights in `base` (even swaps) and of a changed copy (odd ones). Only manifests are
    new: the bytes of a version are hard links."""

    def __init__(self, home: Path, base: Path, cfg: RunConfig, seed: int) -> None:
        self.home = home
        self.kept = [home / "unchanged", home / "changed"]
        _write_both(base, self.kept, cfg, seed)

    def version(self, number: int, swap: int) -> Snapshot:
        """The snapshot of version `number`, which is the `swap`-th (from 1)."""
        folder = self.home / f"v{number}"
        if not folder.exists():
            relabel(self.kept[swap % 2], folder, number)
        return Snapshot(number, str(folder), read_manifest(folder))


def relabel(source: Path, target: Path, version: int) -> Manifest:
    """The same weights as another version, in a folder of its own."""
    shutil.copytree(source, target, copy_function=os.link)
    manifest = replace(read_manifest(source), version=version, parent=version - 1 if version else None)
    _put_manifest(target, manifest)
    return manifest


def _put_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST_NAME).unlink(missing_ok=True)  # it may be a link to another version's
    (folder / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")


def _write_both(base: Path, folders: list[Path], cfg: RunConfig, seed: int) -> None:
    """Both sets, each with its own record of log-probs, as a training run writes them."""
    from transformers import AutoModelForCausalLM

    from pipeline.weights import model_reference, write_snapshot
    from pipeline.weights.snapshot import SERVING_DTYPES

    model = AutoModelForCausalLM.from_pretrained(base, dtype=SERVING_DTYPES[cfg.engine.dtype]).eval()

    for number, folder in enumerate(folders):
        if number:
            perturb(model, seed)
        write_snapshot(
            folder,
            model.state_dict(),
            version=number,
            step=0,
            parent=None,
            config_digest=config_digest(cfg),
            serving_dtype=cfg.engine.dtype,
            model_dir=base,
            reference=model_reference(model),
        )


def perturb(model: "torch.nn.Module", seed: int) -> None:
    """Adds noise, the same for the same seed, to every parameter once (tied ones stay tied)."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            spread = parameter.float().std(correction=0)
            parameter.add_((NOISE * spread * drawn).to(parameter.dtype))


# --- snapshots that must be refused ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bad:
    """`expected`: a word that the reason of the refusal holds."""

    kind: str
    version: int
    folder: str
    digest: str
    expected: str


def bad_snapshots(home: Path, source: Path, version: int) -> list[Bad]:
    """Six kinds, each in a folder of its own, all named as `version`."""
    makers: dict[str, tuple[Callable[[Path], Any], str]] = {
        "missing": (shutil.rmtree, "missing"),
        "truncated": (_truncate, "truncated"),
        "shape": (_reshape, "shape"),
        "nan": (_poison, "NaN"),
        "digest": (lambda folder: None, "digest"),
        "tokenizer": (_other_tokenizer, "tokenizer"),
    }
    made = []
    for kind, (spoil, expected) in makers.items():
        folder = home / f"bad-{kind}"
        relabel(source, folder, version)
        spoil(folder)
        whole = (folder / MANIFEST_NAME).is_file()
        digest = read_manifest(folder).digest if whole else read_manifest(source).digest
        if kind == "digest":
            digest = digest[::-1]
        made.append(Bad(kind, version, str(folder), digest, expected))
    return made


def _own_file(folder: Path, name: str) -> Path:
    """The file as bytes of its own: it may be a link to a good snapshot's."""
    data = (folder / name).read_bytes()
    (folder / name).unlink()
    (folder / name).write_bytes(data)
    return folder / name


def _truncate(folder: Path) -> None:
    weights = _own_file(folder, WEIGHTS_NAME)
    os.truncate(weights, weights.stat().st_size // 2)


def _edit_tensor(folder: Path, change: "Callable[[torch.Tensor], torch.Tensor]") -> None:
    """Changes the first matrix, and the manifest with it: the snapshot fits itself."""
    from safetensors.torch import save_file

    from pipeline.weights import describe, read_tensors

    tensors = {name: tensor.clone() for name, tensor in read_tensors(folder / WEIGHTS_NAME)}
    name = next(name for name, tensor in sorted(tensors.items()) if tensor.dim() == 2)
    tensors[name] = change(tensors[name]).contiguous()
    (folder / WEIGHTS_NAME).unlink()
    save_file(tensors, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    manifest = read_manifest(folder)
    _put_manifest(folder, replace(manifest, tensors={**manifest.tensors, name: describe(tensors[name])}))


def _reshape(folder: Path) -> None:
    _edit_tensor(folder, lambda tensor: tensor[:-1])


def _poison(folder: Path) -> None:
    def change(tensor: "torch.Tensor") -> "torch.Tensor":
        tensor[0, 0] = float("nan")
        return tensor

    _edit_tensor(folder, change)


def _other_tokenizer(folder: Path) -> None:
    from pipeline.weights.sidecars import VOCABULARIES, file_digest

    name = next(name for name in VOCABULARIES if (folder / name).is_file())
    path = _own_file(folder, name)
    if name.endswith(".json"):
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")), indent=3), encoding="utf-8")
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    manifest = read_manifest(folder)
    _put_manifest(folder, replace(manifest, files={**manifest.files, name: file_digest(path)}))
