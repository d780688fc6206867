"""From `kv.tiers` and `kv.transfer` to vLLM's `kv_transfer_config`. Pure.

The same config means the same tiers everywhere; on CPU the pool's copies are ours (`host_spec`), on GPUs vLLM's. The
disk tier is ours on both: vLLM's `fs` tier has no quota, checks no bytes and keeps its folder over a swap of weights.
"""

from typing import Any

from pipeline.config import RunConfig, resolve_path
from pipeline.engine.options import Device
from serve.kv_tier.naming import engine_digest

GIB = 1 << 30
CONNECTORS = {  # kv.transfer.connector: vLLM's registered name, and the package that it needs
    "nixl": ("NixlConnector", "nixl"),
    "nixl_push": ("NixlPushConnector", "nixl"),
    "mooncake": ("MooncakeConnector", "mooncake"),
    "moriio": ("MoRIIOConnector", "mori"),
}


def kv_transfer_config(cfg: RunConfig, device: Device) -> dict[str, Any] | None:
    """vLLM's `kv_transfer_config` for this config, plain JSON; None where neither tiers nor transfer are asked for."""
    transfer = cfg.kv.transfer
    if transfer.connector:
        return {
            "kv_connector": CONNECTORS[transfer.connector][0],
            "kv_role": f"kv_{transfer.role}",
            "kv_connector_extra_config": dict(transfer.extra),
        }
    if cfg.kv.tiers.dram_gib is None:
        return None
    extra = _tiers(cfg, device)
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _tiers(cfg: RunConfig, device: Device) -> dict[str, Any]:
    tiers = cfg.kv.tiers
    spec = {"spec_name": "TieringOffloadingSpec"}
    if device == "cpu":
        spec = {"spec_name": "HostTieringSpec", "spec_module_path": "serve.kv_tier.host_spec"}
    extra = spec | {"cpu_bytes_to_use": int(tiers.dram_gib * GIB), "eviction_policy": tiers.eviction}
    if tiers.disk.path:
        disk = {
            "type": "DiskTier",
            "module_path": "serve.kv_tier.disk_tier",
            "root_dir": str(resolve_path(tiers.disk.path)),
            "max_bytes": int(tiers.disk.max_gib * GIB),
            "threads": tiers.disk.threads,
            "settings": settings_digest(cfg),
        }
        extra["secondary_tiers"] = [disk]
    return extra


def settings_digest(cfg: RunConfig) -> str:
    """Identity of the options that decide the values in a block; the tier adds what the engine made of them."""
    engine = cfg.engine.model_dump(mode="json", include={"dtype", "max_model_len", "tensor_parallel"})
    cache = cfg.kv.model_dump(mode="json", include={"dtype", "prefix_hash"})
    quant, drafts = (section.model_dump(mode="json") for section in (cfg.quant, cfg.speculation))
    drafter = {name: drafts[name] for name in ("method", "model")}
    return engine_digest({"engine": engine, "kv": cache, "quant": quant, "drafts": drafter})
