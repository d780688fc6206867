"""What must not reach vLLM: levers that it would accept and then ignore, get wrong, or fail on minutes later.

No Ray, no vLLM; torch only to ask a GPU what it can. What vLLM itself refuses at once and in plain words is left to it.
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pipeline.config import RunConfig, UserError, nearest, resolve_path
from pipeline.config.option_catalogue import catalogue
from pipeline.engine.options import Device, EngineOptions
from pipeline.engine.vllm_source import class_fields, reasoning_parsers, tool_parsers
from pipeline.quantization.hardware import cpu_has_amx, unfit
from pipeline.quantization.stored import stored_quantisation
from serve.kv_tier.checks import tier_refusals, transfer_refusals
from serve.speculation.from_config import drafter_refusals, policy_refusals

CPU_KV_DTYPES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")  # of vLLM's CPU attention; others are stored and read wrongly
FP8_CAPABILITY = (8, 9)  # CUDA compute capability from which vLLM's platform says it has FP8
GPU_BLOCK = 16  # FlashAttention, Triton and Flex take multiples of it, FlashInfer 16, 32 and 64
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")

Installed = Callable[[str], bool]
ModelConfig = Mapping[str, Any]  # a model folder's config.json


def check_levers(
    cfg: RunConfig, device: Device, capability: tuple[int, int] | None = None, model: ModelConfig | None = None
) -> None:
    """Raise UserError for an engine that cannot be on the device, then with the first of `refusals`.

    `capability` None: that of this machine's GPU, where it has one.
    """
    EngineOptions.from_config(cfg.engine, device)
    for sentence in refusals(cfg, device, capability or gpu_capability(device), model):
        raise UserError(sentence)


def gpu_capability(device: Device) -> tuple[int, int] | None:
    """CUDA compute capability of this machine's first GPU; None without one, or when the device is the CPU."""
    if device == "cpu":
        return None
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


def refusals(
    cfg: RunConfig,
    device: Device,
    capability: tuple[int, int] | None = None,
    model: ModelConfig | None = None,
    installed: Installed = lambda package: importlib.util.find_spec(package) is not None,
    amx: bool | None = None,
) -> list[str]:
    """One sentence for each lever that would not do on this device what it says.

    `capability` is the GPU's CUDA compute capability, `model` the served folder's config.json; what is not given is
    not checked. `installed` says whether a Python package is there, `amx` whether the processor has AMX tiles
    (None: this machine's).
    """
    checks = (
        _kv(cfg, device, capability, installed),
        tier_refusals(cfg, device, model),
        transfer_refusals(cfg, device, installed),
        _blocks(cfg, device, model),
        _batching(cfg, device),
        _speculation(cfg, model, installed),
        _quant(cfg, device, capability, model, cpu_has_amx() if amx is None else amx),
        _parser(cfg),
    )
    return [sentence for check in checks for sentence in check]


def _kv(cfg: RunConfig, device: Device, capability: tuple[int, int] | None, installed: Installed) -> Iterator[str]:
    dtype = cfg.kv.dtype
    if device == "cpu" and dtype not in CPU_KV_DTYPES:
        yield (
            f"kv.dtype is {dtype}; vLLM's CPU attention accepts it and then generates garbage: use auto "
            f"(stores {cfg.engine.dtype}) or fp8"
        )
    elif dtype in ("float16", "bfloat16") and dtype != cfg.engine.dtype:
        yield f"kv.dtype is {dtype} but engine.dtype is {cfg.engine.dtype}; use auto, which stores the model's own type"
    elif dtype in ("fp8", "fp8_e4m3") and device == "cuda" and capability is not None and capability < FP8_CAPABILITY:
        yield f"kv.dtype is {dtype}; a GPU of compute capability {_dotted(capability)} has no FP8 (8.9 has): use auto"
    if cfg.kv.prefix_hash.startswith("xxhash") and not installed("xxhash"):
        yield f"kv.prefix_hash is {cfg.kv.prefix_hash} but the package xxhash is not installed; use sha256"


def _blocks(cfg: RunConfig, device: Device, model: ModelConfig | None) -> Iterator[str]:
    size = cfg.engine.block_size
    if size is None:
        return
    if device == "cuda" and size % GPU_BLOCK:
        yield f"engine.block_size is {size}; on a GPU it must be a multiple of {GPU_BLOCK}; null: the backend's choice"
    elif device == "cpu" and model is not None and model.get("kv_lora_rank"):
        yield f"engine.block_size is {size}, but for this model (MLA) vLLM sets 16 on CPU whatever is asked; use null"


def _batching(cfg: RunConfig, device: Device) -> Iterator[str]:
    batching, engine = cfg.batching, cfg.engine
    tokens, threshold, active = (
        batching.max_num_batched_tokens,
        batching.long_prefill_token_threshold,
        batching.max_num_active_seqs,
    )
    if tokens is not None and tokens < engine.max_num_seqs:
        yield (
            f"batching.max_num_batched_tokens ({tokens}) is below engine.max_num_seqs ({engine.max_num_seqs}); "
            "each sequence takes at least one token of a step: raise the first or lower the second"
        )
    if device == "cpu" and tokens is not None and tokens < engine.max_model_len:
        yield (
            f"batching.max_num_batched_tokens ({tokens}) is below engine.max_model_len ({engine.max_model_len}); on "
            "CPU no prompt is computed in chunks: a longer one would never start; raise the first or lower the second"
        )
    if active is not None and active > engine.max_num_seqs:
        yield f"batching.max_num_active_seqs ({active}) is above engine.max_num_seqs ({engine.max_num_seqs})"
    if threshold and device == "cpu":
        yield (
            f"batching.long_prefill_token_threshold is {threshold}; on CPU it must be 0, because it cuts prompts into "
            "chunks, and a seeded request computed in chunks ends the engine"
        )
    elif threshold > engine.max_model_len:
        yield (
            f"batching.long_prefill_token_threshold ({threshold}) is above engine.max_model_len "
            f"({engine.max_model_len}) and would limit nothing; lower it"
        )
    if batching.long_prefill_token_threshold_adaptive and not threshold:
        yield "batching.long_prefill_token_threshold_adaptive does nothing while long_prefill_token_threshold is 0"


def _speculation(cfg: RunConfig, model: ModelConfig | None, installed: Installed) -> Iterator[str]:
    spec = cfg.speculation
    if spec.method == "suffix" and not installed("arctic_inference"):
        yield "speculation.method is suffix but the package arctic-inference is not installed; use ngram"
    if spec.method == "draft_model" and spec.model and resolve_path(spec.model) == resolve_path(cfg.model.path):
        yield (
            "speculation.model is the served model itself, so drafting saves nothing; give a smaller model with "
            "the same vocabulary, or use ngram"
        )
    if spec.table and spec.table[0][2] == 0:
        yield "speculation.table drafts nothing for a single request, where it pays most; set method to none instead"
    if spec.method == "mtp" and spec.model is None and model is not None:
        heads = next((int(model[key]) for key in MTP_LAYERS if model.get(key)), 0)
        if not heads:
            yield "speculation.method is mtp but the served model's config.json names no prediction heads; use ngram"
        elif spec.k_max and spec.k_max > heads and spec.k_max % heads:
            yield f"speculation.k_max ({spec.k_max}) must be a multiple of the model's {heads} prediction heads"
    yield from drafter_refusals(spec)
    yield from policy_refusals(spec, cfg.serve.most_replicas)


def _quant(
    cfg: RunConfig, device: Device, capability: tuple[int, int] | None, model: ModelConfig | None, amx: bool
) -> Iterator[str]:
    weights = cfg.quant.weights
    stored = stored_quantisation(model or {})
    if stored is not None:
        if weights != "none":
            yield (
                f"quant.weights is {weights} but the served checkpoint is quantised already, to {stored.name}: weights "
                "are rounded once; use none (kv.dtype may still be fp8)"
            )
        elif reason := unfit(stored, model or {}, device, cfg.engine.dtype, capability, amx):
            yield f"model.path: {reason}"
        return
    if weights == "none":
        return
    if device == "cpu":
        fate = "fails in vLLM's CPU kernels" if weights.startswith("fp8") else "is accepted on CPU and not applied"
        yield f"quant.weights={weights} {fate}; use none, or serve a checkpoint that jobs.quantize made"
    elif weights.startswith("fp8") and capability is not None and capability < FP8_CAPABILITY:
        yield (
            f"quant.weights is {weights}; a GPU of compute capability {_dotted(capability)} has no FP8 (8.9 has): use "
            "none or int8_per_channel_weight_only"
        )


def _parser(cfg: RunConfig) -> Iterator[str]:
    parser = cfg.reasoning.parser
    if parser is not None and parser not in reasoning_parsers():
        yield f"reasoning.parser is '{parser}', which vLLM does not have{nearest(parser, reasoning_parsers())}"
    tools = cfg.serve.tool_parser
    if tools is not None and tools not in tool_parsers():
        yield f"serve.tool_parser is '{tools}', which vLLM does not have{nearest(tools, tool_parsers())}"


def sampling_refusals(names: Iterable[str]) -> list[str]:
    """One sentence for each name that vLLM's sampling parameters do not have. Set as an attribute, such a name is
    accepted and read nowhere."""
    known = class_fields("SamplingParams")
    return [_unread(name, known) for name in names if name not in known]


def _unread(name: str, known: frozenset[str]) -> str:
    option = catalogue().get(name)
    rest = f"; {option.remedy()}" if option else nearest(name, (field for field in known if field[0] != "_"))
    return f"'{name}' is no sampling parameter of vLLM and would be ignored{rest}"


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
