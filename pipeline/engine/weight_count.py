"""How many parameters a model has: from the heads of its weight files, or by its config.json for known families."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config.errors import UserError

Config = Mapping[str, Any]
HEAD_LIMIT = 100 << 20  # bytes; the head of a safetensors file is JSON, and no larger than this
_DENSE = ("llama", "mistral", "qwen2", "qwen3")


def stored_parameters(folder: Path) -> int:
    """Numbers in the folder's *.safetensors, by their heads; nothing is loaded. UserError without such files."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder} has no *.safetensors to count; give its config.json with --hf-config instead")
    return sum(math.prod(shape) for file in files for shape in _shapes(file))


def _shapes(file: Path) -> list[list[int]]:
    with open(file, "rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
        try:
            if size > HEAD_LIMIT:
                raise ValueError(f"a head of {size} bytes")
            head = json.loads(handle.read(size))
            return [entry["shape"] for name, entry in head.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} is not a safetensors file ({error}); fetch it again") from None


def counted_parameters(config: Config) -> int | None:
    """Parameters by the architecture of `config`; None for families that are not known here.

    DeepSeek-V3 without its prediction heads, as the served model has them.
    """
    kind = config.get("model_type")
    if kind not in (*_DENSE, "deepseek_v3"):
        return None
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    embeddings = config["vocab_size"] * hidden * (1 if config.get("tie_word_embeddings") else 2)
    norms = (2 * layers + 1) * hidden
    if kind == "deepseek_v3":
        return embeddings + norms + layers * _latent_attention(config) + _experts(config)
    return embeddings + norms + layers * (_attention(config, kind) + 3 * hidden * config["intermediate_size"])


def _attention(config: Config, kind: str) -> int:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads, size = config.get("num_key_value_heads") or heads, config.get("head_dim") or hidden // heads
    queries, keys = heads * size, kv_heads * size
    biases = queries + 2 * keys if kind == "qwen2" or config.get("attention_bias") else 0
    biases += hidden if kind != "qwen2" and config.get("attention_bias") else 0
    return 2 * hidden * (queries + keys) + biases + (2 * size if kind == "qwen3" else 0)


def _latent_attention(config: Config) -> int:
    hidden, heads, latent = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    rank = config["q_lora_rank"]
    queries = hidden * rank + rank + rank * heads * (nope + rope)
    keys = hidden * (latent + rope) + latent + latent * heads * (nope + value)
    return queries + keys + heads * value * hidden


def _experts(config: Config) -> int:
    hidden, dense = config["hidden_size"], config["first_k_dense_replace"]
    expert = 3 * hidden * config["moe_intermediate_size"]
    routed, shared = config["n_routed_experts"], config["n_shared_experts"]
    layer = (routed + shared) * expert + routed * hidden + routed  # and the router with its bias
    return dense * 3 * hidden * config["intermediate_size"] + (config["num_hidden_layers"] - dense) * layer
