"""Small judges with random weights, as folders: what a teaching writes, without the teaching."""

from pathlib import Path

from pipeline.judge.vocabulary import small_tokenizer


def random_judge(folder: Path, *, seed: int = 0, layers: int = 2, positions: int = 256, manifest: bool = True) -> Path:
    """A Llama of the small judge's vocabulary in `folder`/judge; without `manifest` as a hub would give it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from pipeline.weights import write_snapshot

    tokenizer, base = small_tokenizer(), folder / "base"
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=layers,
        num_attention_heads=2, num_key_value_heads=2, head_dim=32, max_position_embeddings=positions,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, initializer_range=0.15, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).float()
    tokenizer.save_pretrained(base)
    if not manifest:
        model.save_pretrained(base)
        return base
    config.save_pretrained(base)
    write_snapshot(
        folder / "judge", model.state_dict(), version=0, step=0, parent=None, config_digest="c",
        serving_dtype="float32", model_dir=base,
    )  # fmt: skip
    return folder / "judge"
