"""Small model folders to round."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 48


def make_base(
    folder: Path, dtype: torch.dtype = torch.bfloat16, seed: int = 5, family: str = "llama", **changed: int
) -> Path:
    """A random two-layer model with a tied head, as one would download it."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2} | changed
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=2,
        initializer_range=0.2,
        **shape,
    )
    AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({f"w{word}": word for word in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    return folder
