"""Runs inside vLLM's worker: receives new weights from a snapshot folder and says what it loaded.

vLLM changes weights in four phases (init, start, update, finish) through a `WeightTransferEngine`; the ones it ships
need NCCL or CUDA IPC. `FolderTransfer` is one for any device: it reads `model.safetensors` of a snapshot folder, which
may lie in shared memory (/dev/shm: the tensors are mapped, not copied). On GPUs the `nccl` engine answers the same
four calls; that path has not been tried here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from pipeline.engine.cpu_sampling import repair
from pipeline.weights import WEIGHTS_NAME, Manifest, SnapshotError, read_manifest, read_tensors
from pipeline.weights.tensors import read_header

repair()  # every engine's worker imports this file

Identity = dict[str, str | int]
BACKEND = "folder"


@dataclass
class FolderInit(WeightTransferInitInfo):
    """Nothing to set up: every update names its folder."""


@dataclass
class FolderUpdate(WeightTransferUpdateInfo):
    """One snapshot folder, and the version and digest its manifest must have."""

    folder: str = ""
    version: int = -1
    digest: str = ""


class FolderTransfer(WeightTransferEngine[FolderInit, FolderUpdate]):
    """Four-phase transfer from a snapshot folder; `loaded` is the identity of the last complete update."""

    init_info_cls = FolderInit
    update_info_cls = FolderUpdate
    loaded: Identity | None = None
    _received: Identity | None = None

    def init_transfer_engine(self, init_info: FolderInit) -> None:
        """No connection is needed."""

    def start_weight_update(self) -> None:
        """Take the layers apart. From here to `finish_weight_update` the model cannot run."""
        self.loaded = self._received = None
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FolderUpdate) -> None:
        """Load every tensor the manifest lists; SnapshotError where file, manifest and model disagree."""
        manifest = check_manifest(update_info.folder, update_info.version, update_info.digest)
        expected = {name for name, _ in self.model.named_parameters()} - tied_heads(self.model) - kv_scales(self.model)
        read: list[str] = []
        filled = self.model.load_weights(noted(read_tensors(Path(update_info.folder) / WEIGHTS_NAME), read))
        missing = sorted(expected - set(filled or ()))
        if missing:
            raise SnapshotError(f"'{missing[0]}' of the engine got no values, {len(missing)} parameters in all")
        if sorted(read) != sorted(manifest.tensors):
            raise SnapshotError(f"{len(read)} tensors were read, the manifest lists {len(manifest.tensors)}")
        self._received = {"version": manifest.version, "digest": manifest.digest, "tensors": len(read)}

    def finish_weight_update(self) -> None:
        """Put the layers together again. RuntimeError without a complete update before it."""
        if self._received is None:
            raise RuntimeError("no complete weight update to finish")
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_head(self.model)
        self.loaded, self._received = self._received, None

    def shutdown(self) -> None:
        """No connection to release."""


class WeightWorker:
    """Mixed into vLLM's worker (`worker_extension_cls`); its methods are called through `collective_rpc`."""

    def check_snapshot(self, folder: str, version: int, digest: str) -> int:
        """Number of tensors of the snapshot as this worker sees it; SnapshotError before any weight is touched."""
        manifest = check_manifest(folder, version, digest)
        header = read_header(Path(folder) / WEIGHTS_NAME)
        if header.keys() != manifest.tensors.keys():
            odd = sorted(header.keys() ^ manifest.tensors.keys())[0]
            raise SnapshotError(f"{folder}: tensor '{odd}' is in only one of file and manifest")
        return len(header)

    def loaded_weights(self) -> Identity | None:
        """Version, digest and tensor count of the last complete update; None before the first or after a failure."""
        return getattr(self.weight_transfer_engine, "loaded", None)

    def load_snapshot(self, folder: str, version: int, digest: str) -> Identity | None:
        """All phases in one call, for hosts that reach the worker only through `collective_rpc`.

        The caller resets the prefix cache afterwards, and keeps the engine from running if this raises.
        """
        self.check_snapshot(folder, version, digest)
        self.start_weight_update()
        self.update_weights({"folder": folder, "version": version, "digest": digest})
        self.finish_weight_update()
        return self.loaded_weights()


def check_manifest(folder: str, version: int, digest: str) -> Manifest:
    """The folder's manifest; SnapshotError unless it has this version and digest."""
    manifest = read_manifest(folder)
    if (manifest.version, manifest.digest) != (version, digest):
        raise SnapshotError(
            f"{folder} holds version {manifest.version} ({manifest.digest[:12]}), "
            f"expected version {version} ({digest[:12]})"
        )
    return manifest


def repack_tied_head(model: torch.nn.Module) -> int:
    """Rebuild the packed copy of every output head from its current weight; returns how many there were.

    On CPU vLLM packs a linear layer's weight for oneDNN once, at load. A head tied to the embedding has no tensor of
    its own in a checkpoint, so a reload leaves its packed copy at the old weights while the embedding is new.
    """
    heads = [m for m in model.modules() if isinstance(m, ParallelLMHead) and hasattr(m, "cpu_linear")]
    for head in heads:
        head.quant_method.process_weights_after_loading(head)
    return len(heads)


def tied_heads(model: torch.nn.Module) -> set[str]:
    """Parameter names of output heads that share the embedding (checkpoints leave them out)."""
    if not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return set()
    return {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, ParallelLMHead)}


def kv_scales(model: torch.nn.Module) -> set[str]:
    """Parameter names of the attention layers' own scales, which a model with rounded weights has. They are 1 unless a
    checkpoint brings some, and a reload puts them back."""
    layers = [(name, layer) for name, layer in model.named_modules() if is_deferred_attention_layer(layer)]
    own = {f"{name}.{leaf}" for name, layer in layers for leaf, _ in layer.named_parameters(recurse=False)}
    return {name for name in own if name.endswith(("_scale", "_zero_point"))}


def noted(tensors: Iterator[tuple[str, torch.Tensor]], names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """`tensors` unchanged, with each name appended to `names` as it passes."""
    for name, tensor in tensors:
        names.append(name)
        yield name, tensor


def register() -> None:
    """Make the transfer known to vLLM under `BACKEND`; importing this module in the worker is early enough."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, FolderTransfer)


register()
