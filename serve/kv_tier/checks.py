"""What must not reach vLLM of `kv.tiers` and `kv.transfer`: what would keep nothing, or could be wrong. One sentence
each. Looks at the disk, changes nothing."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.config import RunConfig, UserError, resolve_path
from pipeline.engine.options import Device
from pipeline.engine.vllm_source import kv_connectors
from serve.kv_tier.arguments import CONNECTORS, GIB
from serve.kv_tier.block_file import file_size

SHARED = Path("/dev/shm")  # where vLLM keeps the pool
PAGE = 4096  # the pool's rows are whole pages of memory


def tier_refusals(cfg: RunConfig, device: Device, model: Mapping[str, Any] | None) -> Iterator[str]:
    """One sentence for each part of `kv.tiers` that would not do what it says. `model`: the served config.json."""
    tiers = cfg.kv.tiers
    if tiers.dram_gib is None:
        return
    if not cfg.kv.prefix_cache:
        yield "kv.tiers does nothing with kv.prefix_cache=false, because blocks are found by the prefix cache's names"
    if tiers.disk.path and cfg.kv.prefix_hash.startswith("xxhash"):
        yield (
            f"kv.tiers.disk does nothing with kv.prefix_hash={cfg.kv.prefix_hash}, whose names differ in every "
            "process; use sha256"
        )
    if tiers.disk.path and "://" in tiers.disk.path:
        yield f"kv.tiers.disk.path is {tiers.disk.path}, a URL; give a folder of the replica's machine"
    elif tiers.disk.path:
        yield from _path(resolve_path(tiers.disk.path), tiers.disk.max_gib)
    yield from _shared_memory(tiers.dram_gib, cfg.serve.most_replicas)
    if model is not None:
        yield from _sizes(cfg, device, model)


def _shared_memory(dram_gib: float, replicas: int) -> Iterator[str]:
    """Each replica has a pool of its own; all may be on this machine."""
    if SHARED.is_dir() and dram_gib * replicas * GIB > (room := shutil.disk_usage(SHARED).total):
        each = f" for each of {replicas} replicas" if replicas > 1 else ""
        fewer = "lower it, serve fewer replicas" if replicas > 1 else "lower it"
        yield (
            f"kv.tiers.dram_gib is {dram_gib:g}{each}, but {SHARED} has {room / GIB:.3g} in all; {fewer}, or give the "
            "machine or container more shared memory"
        )


def _path(path: Path, max_gib: float) -> Iterator[str]:
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        yield f"kv.tiers.disk.path is {path}, but {there} is a file; give a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        yield f"kv.tiers.disk.path is {path}, but {there} cannot be written; give another folder"
    elif max_gib * GIB > (total := shutil.disk_usage(there).total):
        yield f"kv.tiers.disk.max_gib is {max_gib:g}, but the whole disk of {there} has {total / GIB:.3g}; lower it"


def _sizes(cfg: RunConfig, device: Device, model: Mapping[str, Any]) -> Iterator[str]:
    from serve.kv_budget import pool_of  # it imports the levers, which import this

    try:
        pool = pool_of(cfg, model, device)
    except UserError:
        return  # a cache that is not counted here
    block = -(-pool.bytes_per_block * cfg.engine.tensor_parallel // PAGE) * PAGE
    tiers, needed = cfg.kv.tiers, pool.blocks_per_request(cfg.engine.max_model_len)
    if (held := int(tiers.dram_gib * GIB) // block) < needed:
        yield (
            f"kv.tiers.dram_gib ({tiers.dram_gib:g}) holds {held} blocks of {block:,} bytes; a prompt of "
            f"engine.max_model_len ({cfg.engine.max_model_len}) tokens has {needed}: set at least "
            f"{_round_up(needed * block / GIB):g}"
        )
    if tiers.disk.path and tiers.disk.max_gib * GIB < file_size(block):
        yield (
            f"kv.tiers.disk.max_gib ({tiers.disk.max_gib:g}) holds not one block of {file_size(block):,} bytes: set at "
            f"least {_round_up(file_size(block) / GIB):g}"
        )


def _round_up(gib: float) -> float:
    return (int(gib * 1e6) + 1) / 1e6


def transfer_refusals(cfg: RunConfig, device: Device, installed: Callable[[str], bool]) -> Iterator[str]:
    """One sentence for each reason not to use `kv.transfer` here."""
    name = cfg.kv.transfer.connector
    if name is None:
        return
    registered, package = CONNECTORS[name]
    if device == "cpu":
        yield f"kv.transfer.connector is {name}, which moves the cache of GPUs; on CPU use kv.tiers"
    elif registered not in kv_connectors():
        yield f"kv.transfer.connector is {name}, but the installed vLLM has no {registered}; install the pinned release"
    elif not installed(package):
        yield f"kv.transfer.connector is {name} but the package {package} is not installed; install it"
    if cfg.kv.tiers.dram_gib is not None:
        yield "kv.transfer and kv.tiers are both set, but an engine has one connector; remove one of them"
