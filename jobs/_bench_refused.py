"""Why a row cannot run on this machine, before anything is started."""

from collections.abc import Mapping
from typing import Any

from pipeline.config import RunConfig
from pipeline.config.schema_serving import Quant
from pipeline.quantization.hardware import cpu_has_amx
from serve.kv_budget import device_of
from serve.levers import refusals

# vLLM 0.32 has one FP8 kernel for weights that works on CPUs, and it needs AMX: per tensor fails when it is called, per
# channel takes a path a hundred times slower. The endpoint refuses FP8 weights on CPUs, since swapping packed ones was
# not tried; here nothing is swapped.
CPU_FP8, AMX_DTYPE = "fp8_per_block", "bfloat16"


def refused_here(cfg: RunConfig, model: Mapping[str, Any] | None = None) -> str:
    """The first reason, or nothing. `model`: the served folder's config.json, where it is known."""
    device = device_of(cfg)
    if device == "cpu" and cfg.quant.weights == CPU_FP8:
        if why := no_cpu_fp8(cfg.engine.dtype, cpu_has_amx()):
            return why
        cfg = cfg.model_copy(update={"quant": Quant()})  # the rest is checked as ever
    return next(iter(refusals(cfg, device, model=model)), "")


def no_cpu_fp8(dtype: str, amx: bool) -> str:
    """Why FP8 weights do not run on a CPU with or without AMX; empty where they do."""
    if not amx:
        return f"quant.weights={CPU_FP8} needs a processor with AMX, which this one lacks"
    if dtype != AMX_DTYPE:
        return f"quant.weights={CPU_FP8} is multiplied with {AMX_DTYPE} on CPUs, and engine.dtype is {dtype}"
    return ""
