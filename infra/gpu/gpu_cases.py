"""The servers of the GPU measurement, most valuable first, and the made-up models they serve.

Weights are vLLM's dummies, so what is written is noise and no answer is checked; the time of dense kernels is that of
real weights of the same shape. Acceptance of drafts is not measured but set (`synthetic`), and labelled so.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCABULARY = 128_256
BLOCK_SIZES = (8, 16, 32, 64, 128)
ACCEPTED = (2.5, 1.5, 3.5)  # tokens a verified step gives, its own one included
K = 4
SHAPES: Mapping[str, Mapping[str, int]] = {  # of Llama: about 8, 1.2 and 0.5 billion parameters with embeddings
    "8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "inner": 14336},
    "1b": {"hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "inner": 8192},
    "thin": {"hidden": 1024, "layers": 2, "heads": 16, "kv_heads": 8, "inner": 4096},
}


@dataclass(frozen=True)
class Case:
    """One server. `seconds`: what it may take in all, by estimate; `does`: what is measured on it."""

    name: str
    shape: str
    kwargs: Mapping[str, Any]
    does: str
    seconds: int
    labels: Mapping[str, Any] = field(default_factory=dict)


def cases(folder: Path) -> list[Case]:
    """In the order they are measured; `folder` has the models."""
    fp8 = {"quantization": "fp8_per_tensor"}
    found = [Case(f"block-{size}", "thin", _small(size), "start", 60) for size in BLOCK_SIZES]
    found += [
        Case("bf16", "8b", _common(), "rows A A' B", 120),
        Case("fp8-weights", "8b", _common() | fp8, "row", 80),
        Case("fp8-weights-and-kv", "8b", _common() | fp8 | {"kv_cache_dtype": "fp8"}, "row", 80),
        Case("dram-tier", "8b", _common() | _dram_tier(32), "tiers", 80),
    ]
    drafted = [case for length in ACCEPTED for case in _drafting(folder, length)]
    return [*found, *drafted[:2], _adaptive(folder), *drafted[2:]]


def _dram_tier(gib: int) -> dict[str, Any]:
    """As `kv.tiers` sets it up."""
    from pipeline.config import RunConfig
    from serve.kv_tier.arguments import kv_transfer_config

    return {"kv_transfer_config": kv_transfer_config(RunConfig(kv={"tiers": {"dram_gib": gib}}), "cuda")}


def _drafting(folder: Path, length: float) -> list[Case]:
    """A fixed length, and vLLM's own table of lengths by batch."""
    labels = {"acceptance": "set, not measured", "tokens_per_step": length}
    static = speculative(folder, length)
    table = static | {"num_speculative_tokens_per_batch_size": [[1, 16, K], [17, 64, 2], [65, 256, 0]]}
    named = {f"static-{length}": static, f"table-{length}": table}
    return [
        Case(name, "8b", _common() | {"speculative_config": config}, "steps", 90, labels)
        for name, config in named.items()
    ]


def _adaptive(folder: Path) -> Case:
    """Our scheduler, which is a synchronous one."""
    from serve.speculation import Settings, engine_options

    options = engine_options(Settings("goodput", options={"dwell": 8}), speculative(folder, ACCEPTED[0]))
    labels = {"acceptance": "set, not measured", "tokens_per_step": ACCEPTED[0]}
    return Case("adaptive", "8b", _common() | options, "steps", 90, labels)


def speculative(folder: Path, length: float) -> dict[str, Any]:
    """A draft model an eighth as large, whose drafts are accepted at a set rate."""
    return {
        "method": "draft_model",
        "model": str(folder / "1b"),
        "num_speculative_tokens": K,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": length,
    }


def _common() -> dict[str, Any]:
    return {
        "load_format": "dummy",
        "dtype": "bfloat16",
        "max_model_len": 8192,
        "max_num_seqs": 256,
        "gpu_memory_utilization": 0.85,
        "enable_prefix_caching": True,
    }


def _small(block: int) -> dict[str, Any]:
    size = {"max_model_len": 2048, "gpu_memory_utilization": 0.1, "block_size": block}
    return _common() | size | {"enforce_eager": True}


def make_model(folder: Path, shape: Mapping[str, int]) -> None:
    """config.json and a tokenizer of numbered words, a few MB; no weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model_config(shape), indent=1))
    words = {"<eos>": 0, "<unk>": 1} | {f"t{number}": number for number in range(2, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"chat_template": template}))


def model_config(shape: Mapping[str, int]) -> dict[str, Any]:
    """Of a Llama, as transformers reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["inner"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["hidden"] // shape["heads"],
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": shape["layers"] < 32,
        "dtype": "bfloat16",
        "eos_token_id": 0,
        "bos_token_id": None,
    }


def in_time(found: Sequence[Case], left_s: float) -> list[Case]:
    """Those that fit into the time, by their estimates, in their order; a case that does not fit ends it. The starts
    with block sizes go on beside each other, and count once."""
    kept: list[Case] = []
    for case in found:
        beside = case.does == "start" and any(other.does == "start" for other in kept)
        left_s -= 0 if beside else case.seconds
        if left_s < 0:
            break
        kept.append(case)
    return kept
