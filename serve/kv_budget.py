"""Whether the endpoint's KV cache holds one request of full length, told before anything starts. Pure but for reading
the model's config.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import RunConfig, UserError, resolve_path
from pipeline.engine.kv_layout import DTYPE_BYTES, kv_layout
from pipeline.engine.memory import KvPlan, Pool, kv_plan
from pipeline.engine.options import CPU_BLOCK, Device, installed_build
from serve.levers import budget_tokens

GPU_BLOCK = 16  # what FlashAttention is given where nothing is asked for
MLA_BLOCK = {"cpu": 16, "cuda": 64}  # vLLM sets the first whatever is asked; FlashMLA's is the second
DRAFTS = ("draft_model", "eagle", "eagle3", "mtp")  # methods with layers, and a cache, of their own


def read_model_config(file: Path) -> dict[str, Any]:
    """A model's config.json. UserError when it cannot be read."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {file} ({error.strerror}); give a model folder or its config.json") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"{file} holds no mapping; give the config.json of a Hugging Face model")
    return config


def device_of(cfg: RunConfig) -> Device:
    """The device `engine.device` means here."""
    return installed_build() if cfg.engine.device == "auto" else cfg.engine.device


def pool_of(cfg: RunConfig, model: Mapping[str, Any], device: Device, dtype: str | None = None) -> Pool:
    """The pool of blocks as the endpoint's engines will have it; `dtype` instead of `kv.dtype`.

    UserError for a model whose cache is not counted, and for a type of the cache without a plain size.
    """
    layout = kv_layout(model)
    asked = dtype or cfg.kv.dtype
    stored = cfg.engine.dtype if asked == "auto" else asked
    if stored not in DTYPE_BYTES:
        raise UserError(f"the size of a KV cache of type {stored} is not counted here; known: {', '.join(DTYPE_BYTES)}")
    usual = CPU_BLOCK if device == "cpu" else GPU_BLOCK
    if layout.mla:
        block = MLA_BLOCK["cpu"] if device == "cpu" else cfg.engine.block_size or MLA_BLOCK["cuda"]
    else:
        block = cfg.engine.block_size or usual
    return Pool(layout, block, stored, cfg.engine.tensor_parallel, budget_tokens(cfg, device))


def kv_budget_line(cfg: RunConfig) -> str:
    """One line on the KV cache for a dry run. UserError when it cannot hold one request of engine.max_model_len.

    A model that is not there yet, whose cache is not counted, or a budget that only the GPU can tell is said, not
    refused.
    """
    budget, context = cfg.engine.kv_cache_bytes, cfg.engine.max_model_len
    try:
        pool = pool_of(cfg, read_model_config(resolve_path(cfg.model.path) / "config.json"), device_of(cfg))
    except UserError as reason:
        return f"KV cache: not checked ({reason})"
    plan = kv_plan(pool, context, budget)
    if budget is None:
        return (
            f"KV cache: a request of {context:,} tokens needs {plan.needed_bytes:,} bytes of it; its size is the GPU's"
        )
    if not plan.fits:
        raise UserError(_too_small(plan, pool, context, budget))
    beside = "; the draft's own layers are not counted" if cfg.speculation.method in DRAFTS else ""
    return (
        f"KV cache: {plan.blocks:,} blocks of {pool.block_size} tokens ({pool.dtype}), "
        f"{plan.concurrency:.1f} requests of {context:,} tokens at once{beside}"
    )


def _too_small(plan: KvPlan, pool: Pool, context: int, budget: int) -> str:
    shorter = f"lower engine.max_model_len to {plan.longest:,} or less, or " if plan.longest else ""
    smaller = ", or set kv.dtype=fp8" if pool.dtype in ("float32", "bfloat16", "float16") else ""
    return (
        f"engine.kv_cache_bytes is {budget:,}; one request of engine.max_model_len ({context:,}) tokens needs "
        f"{plan.needed_bytes:,} ({plan.bytes_per_token:,} a token, in blocks of {pool.block_size}): "
        f"{shorter}raise engine.kv_cache_bytes{smaller}"
    )
