"""What a model keeps in the KV cache, from its config.json alone: layers, heads, values a token, windows.

Only model types whose layout is known here are answered; for others (recurrent state, sparse or chunked attention,
shared or unequal layers) a wrong figure would look like a right one, so they are refused with a sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config.errors import UserError

PLAIN = ("llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "granite", "olmo2")
WINDOWED = ("mistral", "mixtral", "phi3")  # a `sliding_window` that is not null holds for every layer
MIXED = ("gemma2", "gemma3_text", "gpt_oss", "olmo3")  # `layer_types` says which layers have the window
MLA = ("deepseek_v2", "deepseek_v3", "kimi_k2")
DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}

Config = Mapping[str, Any]


@dataclass(frozen=True)
class KvLayout:
    """`full` layers keep every token, `windowed` ones the last `window`; each stores, per token and KV head, `values`
    numbers (key and value; for MLA one latent, whose single head every tensor-parallel rank holds)."""

    full: int
    windowed: int
    window: int | None
    kv_heads: int
    values: int
    mla: bool = False

    def page_bytes(self, block_size: int, dtype: str, tensor_parallel: int = 1) -> int:
        """Bytes of one layer's part of a block, on one rank."""
        heads = max(1, self.kv_heads // tensor_parallel)
        return block_size * heads * self.values * DTYPE_BYTES[dtype]


def kv_layout(config: Config) -> KvLayout:
    """The layout of a model by its config.json. UserError where its cache is not a plain one or the type is unknown."""
    kind = str(config.get("model_type"))
    layers = _number(config, "num_hidden_layers")
    _refuse_others(config, kind)
    if kind in MLA:
        values = _number(config, "kv_lora_rank") + _number(config, "qk_rope_head_dim")
        return KvLayout(layers, 0, None, 1, values, mla=True)
    heads = _number(config, "num_attention_heads")
    kv_heads = int(config.get("num_key_value_heads") or heads)
    values = 2 * int(config.get("head_dim") or _number(config, "hidden_size") // heads)
    windowed = _windowed(config, kind, layers)
    window = _number(config, "sliding_window") if windowed else None
    return KvLayout(layers - windowed, windowed, window, kv_heads, values)


def _windowed(config: Config, kind: str, layers: int) -> int:
    types = config.get("layer_types")
    if types is None and kind in MIXED:
        raise UserError(
            f"config.json of a {kind} model does not list layer_types; save it with a current transformers release"
        )
    if types is not None:
        strange = sorted(set(types) - {"full_attention", "sliding_attention"})
        if strange or len(types) != layers:
            raise UserError(f"the KV cache of layers of type {', '.join(strange) or 'unknown'} is not counted here")
        return list(types).count("sliding_attention")
    if kind in WINDOWED:
        return layers if config.get("sliding_window") else 0
    if config.get("use_sliding_window"):
        raise UserError(
            f"config.json of a {kind} model uses a sliding window without layer_types; which layers is unknown"
        )
    return 0


def _refuse_others(config: Config, kind: str) -> None:
    known = (*PLAIN, *WINDOWED, *MIXED, *MLA)
    if kind not in known:
        raise UserError(f"the KV cache of model type '{kind}' is not counted here; known: {', '.join(known)}")
    for key, what in (
        ("index_topk", "sparse attention with an index"),
        ("compress_ratios", "compressed attention"),
        ("num_kv_shared_layers", "layers that share a cache"),
        ("attention_chunk_size", "attention in chunks"),
    ):
        if config.get(key):
            raise UserError(f"the KV cache of a model with {what} ({key}) is not counted here")


def _number(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"config.json: {key} is {value!r}; it must be a whole number above 0")
    return value
