"""From the endpoint's levers in a run's config to vLLM's engine arguments. What must not reach vLLM: `lever_checks`."""

from typing import Any

from pipeline.config import RunConfig
from pipeline.engine.options import CPU_BATCHED_TOKENS, Device, EngineOptions
from serve.kv_tier.arguments import kv_transfer_config
from serve.lever_checks import check_levers, refusals, sampling_refusals
from serve.speculation.from_config import speculation_args

# Options of a rollout engine that an endpoint does without: it takes text, samples as the model folder says, and tells
# Prometheus its figures.
ROLLOUT_ONLY = ("model", "skip_tokenizer_init", "logprobs_mode", "generation_config", "disable_log_stats")
SECTIONS = ("kv", "batching", "admission", "speculation", "quant", "reasoning")

__all__ = [
    "budget_tokens",
    "check_levers",
    "engine_kwargs",
    "engine_levers",
    "lever_sections",
    "refusals",
    "sampling_refusals",
]


def engine_kwargs(engine: EngineOptions, cfg: RunConfig) -> dict[str, Any]:
    """vLLM's engine arguments: those of a rollout engine, but for text, and the endpoint's levers."""
    shared = {name: value for name, value in engine.engine_args("").items() if name not in ROLLOUT_ONLY}
    return shared | engine_levers(cfg, engine.device)


def engine_levers(cfg: RunConfig, device: Device) -> dict[str, Any]:
    """Keyword arguments of vLLM's `EngineArgs`, and of its `FrontendArgs` those for tools, plain JSON; what is left to
    vLLM is not among them."""
    kv, batching, admission, reasoning = cfg.kv, cfg.batching, cfg.admission, cfg.reasoning
    threshold = batching.long_prefill_token_threshold
    chosen = {
        "kv_cache_dtype": kv.dtype,
        "enable_prefix_caching": kv.prefix_cache,
        "prefix_caching_hash_algo": kv.prefix_hash,
        "kv_transfer_config": kv_transfer_config(cfg, device),
        "max_num_batched_tokens": batching.max_num_batched_tokens,
        "max_num_active_seqs": batching.max_num_active_seqs,
        "long_prefill_token_threshold": threshold or None,
        "long_prefill_token_threshold_adaptive": (batching.long_prefill_token_threshold_adaptive or None),
        "max_num_queued_reqs": admission.max_requests,
        "max_num_queued_tokens": admission.max_prefill_tokens,
        "scheduling_policy": admission.policy,
        "quantization": None if cfg.quant.weights == "none" else cfg.quant.weights,
        "reasoning_parser": reasoning.parser or "",
        "reasoning_config": (
            {"reasoning_start_str": reasoning.start, "reasoning_end_str": reasoning.end} if reasoning.start else None
        ),
        "enable_auto_tool_choice": True if cfg.serve.tool_parser else None,
        "tool_call_parser": cfg.serve.tool_parser,
    }
    return {name: value for name, value in chosen.items() if value is not None} | speculation_args(cfg.speculation)


def lever_sections(cfg: RunConfig) -> dict[str, Any]:
    """The levers as plain data, for a Serve config's `args`; `RunConfig(**sections)` has them again."""
    return {name: getattr(cfg, name).model_dump(mode="json") for name in SECTIONS}


def budget_tokens(cfg: RunConfig, device: Device) -> int | None:
    """A step's token budget as the engine will have it; None where vLLM chooses."""
    asked = cfg.batching.max_num_batched_tokens
    return asked or (max(CPU_BATCHED_TOKENS, cfg.engine.max_model_len) if device == "cpu" else None)
