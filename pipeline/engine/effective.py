"""What was asked of an engine beside what it runs with."""

from dataclasses import dataclass
from typing import Any

from pipeline.config.errors import UserError
from pipeline.engine.options import EngineOptions


@dataclass(frozen=True)
class EffectiveOptions:
    """`requested` and `effective` by the same names (effective holds a few more); `capacity_tokens` is the KV cache's
    size in tokens."""

    requested: dict[str, object]
    effective: dict[str, object]
    capacity_tokens: int

    def differences(self) -> dict[str, tuple[object, object]]:
        """name -> (requested, effective) for every option that was asked for and is not in effect."""
        pairs = {name: (value, self.effective.get(name)) for name, value in self.requested.items() if value is not None}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def check(self) -> None:
        """Raise UserError that names the first option without effect."""
        for name, (wanted, found) in sorted(self.differences().items()):
            raise UserError(
                f"engine.{name} was set to {wanted} but the engine runs with {found}; "
                f"set it to what this model and device support"
            )


def effective_options(options: EngineOptions, config: Any) -> EffectiveOptions:
    """Read back vLLM's resolved `VllmConfig` beside `options`."""
    model, cache, scheduler, parallel = (
        config.model_config,
        config.cache_config,
        config.scheduler_config,
        config.parallel_config,
    )
    effective = {
        "device": config.device_config.device_type,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.max_model_len,
        "enforce_eager": model.enforce_eager,
        "logprobs_mode": str(model.logprobs_mode),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "chunked_prefill": scheduler.enable_chunked_prefill,
        "async_scheduling": bool(scheduler.async_scheduling),
        "block_size": cache.block_size,
        "kv_cache_bytes": cache.kv_cache_memory_bytes,
        "kv_cache_dtype": str(cache.cache_dtype),
        "prefix_caching": cache.enable_prefix_caching,
        "tensor_parallel": parallel.tensor_parallel_size,
        "executor": str(parallel.distributed_executor_backend),
        "weight_backend": config.weight_transfer_config.backend,
    }
    return EffectiveOptions(_requested(options), effective, (cache.num_gpu_blocks or 0) * cache.block_size)


def _requested(options: EngineOptions) -> dict[str, object]:
    names = (
        "device",
        "dtype",
        "max_model_len",
        "enforce_eager",
        "max_num_seqs",
        "max_num_batched_tokens",
        "chunked_prefill",
        "block_size",
        "kv_cache_bytes",
        "tensor_parallel",
        "weight_backend",
    )
    fixed = {"logprobs_mode": "processed_logprobs", "prefix_caching": True, "async_scheduling": False}
    return {**{name: getattr(options, name) for name in names}, **fixed}
