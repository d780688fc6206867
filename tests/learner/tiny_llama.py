"""A random two-layer Llama in a folder, and seeded batches for it."""

from pathlib import Path

import numpy as np

from pipeline.learner.streams import TokenStreams
from pipeline.traces.trace import VersionSpan

VOCABULARY = 40
SERIES = (7, 1, 8, 5)  # rows of each step's batch; one of them cannot feed two ranks


def make_model(folder: Path, tied: bool = True) -> str:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        pad_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    write_tokenizer(folder)
    return str(folder)


def write_tokenizer(folder: Path) -> None:
    """One word a token; a snapshot is a whole model folder and so needs one."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{word}": word for word in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def make_streams(seed: int, rows: int = 7, prompt: int = 4, longest: int = 12, masked: bool = False) -> TokenStreams:
    rng = np.random.default_rng(seed)
    prompts = rng.integers(1, prompt + 1, rows)
    responses = rng.integers(1, longest + 1, rows)
    return TokenStreams(
        input_ids=tuple(rng.integers(3, VOCABULARY, p + t) for p, t in zip(prompts, responses, strict=True)),
        prompt_length=tuple(int(p) for p in prompts),
        advantages=tuple(rng.normal(size=t).astype(np.float32) for t in responses),
        behaviour_logprobs=tuple(rng.normal(-3.7, 0.2, size=t).astype(np.float32) for t in responses),
        mask=tuple((rng.random(t) < 0.8) & (not masked) for t in responses),
        problem_id=tuple(f"p{row}" for row in range(rows)),
        versions=tuple((VersionSpan(0, 0, int(t)),) for t in responses),
    )
