"""Which rounded weights the hardware can multiply: what vLLM's kernels take, told before an engine starts.

Pure but for `cpu_has_amx`. On a CPU vLLM loads most of what it cannot compute and fails at the first request.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pipeline.quantization.stored import Stored

CPU_MULTIPLE = 32  # of a layer's inputs and outputs, for vLLM's INT4 kernel on CPU
INT4_TYPES = ("bfloat16", "float16")  # of activations, for the same kernel
LEAST_CAPABILITY = (7, 5)  # CUDA compute capability of vLLM's schemes for rounded weights
CPUINFO = Path("/proc/cpuinfo")


@cache
def cpu_has_amx() -> bool:
    """Whether this machine's processor has AMX tiles, by what Linux says; False elsewhere."""
    return CPUINFO.is_file() and "amx_tile" in CPUINFO.read_text(encoding="utf-8", errors="replace")


def unfit(
    stored: Stored,
    model: Mapping[str, Any],
    device: Literal["cpu", "cuda"],
    dtype: str,
    capability: tuple[int, int] | None = None,
    amx: bool = False,
) -> str | None:
    """One sentence why this checkpoint does not run with `engine.dtype` `dtype`; None when it does, as far as its
    config.json `model` tells. `capability` is the GPU's, None: not checked; `amx` the processor's."""
    if device == "cuda":
        if capability is not None and capability < LEAST_CAPABILITY:
            return (
                f"the checkpoint holds {stored.name} weights; a GPU of compute capability "
                f"{'.'.join(map(str, capability))} does not multiply them (7.5 does): use the model they come from"
            )
        return None
    return next(_on_cpu(stored, model, dtype, amx), None)


def _on_cpu(stored: Stored, model: Mapping[str, Any], dtype: str, amx: bool) -> Iterator[str]:
    held = f"the checkpoint holds {stored.name} weights"
    if stored.number == "float" and stored.bits == 8:
        if not amx:
            yield f"{held}, which need a processor with AMX tiles; round the model to INT4 or INT8 instead"
        if not stored.blocks:
            yield f"{held}; on CPU only FP8 in blocks is multiplied: round the model to INT4 or INT8 instead"
        if dtype != "bfloat16":
            yield f"{held}, which on CPU need engine.dtype bfloat16, not {dtype}"
    elif stored.number == "int" and stored.activation_bits == 16:
        if stored.bits != 4:
            yield f"{held}; on CPU weights alone are rounded to 4 bits, or weights and activations to 8"
        if dtype not in INT4_TYPES:
            yield f"{held}, which on CPU need engine.dtype bfloat16 or float16, not {dtype}"
        if stored.group is not None and stored.group % 2:
            yield f"{held}; on CPU a group must be even"
        for what, size in sizes(model).items():
            if size % CPU_MULTIPLE:
                yield f"{held}; on CPU {what} ({size}) must be a multiple of {CPU_MULTIPLE}"
    elif stored.number == "int" and stored.bits == 8:
        if amx and dtype != "bfloat16":
            yield f"{held}, which on a processor with AMX tiles need engine.dtype bfloat16, not {dtype}"
    elif stored.bits is not None:
        yield f"{held}, which vLLM has no CPU kernel for; round the model to INT4 or INT8"


def sizes(model: Mapping[str, Any]) -> dict[str, int]:
    """Inputs and outputs of a decoder's linear layers by what they are called in config.json; what it lacks is left
    out."""
    text = model.get("text_config") if isinstance(model.get("text_config"), Mapping) else model
    found = {name: text[name] for name in ("hidden_size", "intermediate_size") if text.get(name)}
    heads, hidden = text.get("num_attention_heads"), text.get("hidden_size")
    if heads and hidden:
        size = text.get("head_dim") or hidden // heads
        found["width of the queries"] = heads * size
        found["width of queries, keys and values"] = (heads + 2 * (text.get("num_key_value_heads") or heads)) * size
    return found
