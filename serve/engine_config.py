"""What a replica's engine runs with, by the names of vLLM's engine arguments: a reading of vLLM's resolved config."""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import reduce
from typing import Any

from pipeline.quantization.stored import stored_quantisation

_SCHEDULER = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_active_seqs",
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "async_scheduling",
)
_CACHE = (
    "block_size",
    "kv_cache_memory_bytes",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "prefix_caching_hash_algo",
)
_SPECULATION = (
    "method",
    "model",
    "num_speculative_tokens",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "num_speculative_tokens_per_batch_size",
)
_TRANSFER = ("kv_connector", "kv_role", "kv_connector_extra_config")
# Where vLLM's VllmConfig has what an engine argument asked for.
PLACES: Mapping[str, str] = {
    **{name: f"model_config.{name}" for name in ("dtype", "max_model_len", "enforce_eager", "quantization")},
    **{name: f"scheduler_config.{name}" for name in _SCHEDULER},
    "scheduling_policy": "scheduler_config.policy",
    "scheduler_cls": "scheduler_config.scheduler_cls",
    **{name: f"cache_config.{name}" for name in _CACHE},
    "kv_cache_dtype": "cache_config.cache_dtype",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
    "worker_extension_cls": "parallel_config.worker_extension_cls",
    "weight_transfer_config.backend": "weight_transfer_config.backend",
    **{f"speculative_config.{name}": f"speculative_config.{name}" for name in _SPECULATION},
    "per_request_spec_decode_metrics": "observability_config.per_request_spec_decode_metrics",
    "reasoning_parser": "structured_outputs_config.reasoning_parser",
    "reasoning_config.reasoning_start_str": "reasoning_config.reasoning_start_str",
    "reasoning_config.reasoning_end_str": "reasoning_config.reasoning_end_str",
    **{f"kv_transfer_config.{name}": f"kv_transfer_config.{name}" for name in _TRANSFER},
    # Not asked for by these names; worth knowing.
    "executor": "parallel_config.distributed_executor_backend",
    "device": "device_config.device_type",
    "kv_cache_blocks": "cache_config.num_gpu_blocks",
}
FRONTEND = ("enable_auto_tool_choice", "tool_call_parser")


def effective_engine(config: Any, frontend: Any, log_stats: bool) -> dict[str, Any]:
    """Plain data by the names an engine argument has, dotted inside a mapping. What vLLM does not tell is left out.

    `config` is vLLM's `VllmConfig` after the engine's start, `frontend` the arguments of its HTTP app.
    """
    found = {name: _at(config, place) for name, place in PLACES.items()}
    found |= {name: getattr(frontend, name, None) for name in FRONTEND}
    found["additional_config"] = getattr(config, "additional_config", None) or None  # of policy and drafter
    stated = _at(config, "model_config.hf_config.quantization_config")
    if stored := stored_quantisation({"quantization_config": stated}):
        found["quantized_checkpoint"] = stored.name
    told = {name: _plain(value) for name, value in found.items() if value is not None}
    return told | {"disable_log_stats": not log_stats}


def kv_tokens(effective: Mapping[str, Any]) -> int | None:
    """What the KV cache of an engine that runs with `effective` holds, all requests together; None where it is not
    told."""
    blocks, size = effective.get("kv_cache_blocks"), effective.get("block_size")
    return blocks * size if blocks and size else None


def _at(config: Any, place: str) -> Any:
    return reduce(lambda part, name: getattr(part, name, None), place.split("."), config)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    return str(value).removeprefix("torch.")  # a dtype
