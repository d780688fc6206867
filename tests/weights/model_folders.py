"""Small real model folders for the tests of this room."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def make_model(tied, seed=0):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=8,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=32,
            tie_word_embeddings=tied,
        )
    )


def make_tokenizer(words="a b c d e f"):
    vocab = {word: i for i, word in enumerate(["<unk>", *words.split()])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return fast


def make_folder(path: Path, tied=False, seed=0, words="a b c d e f"):
    model = make_model(tied, seed)
    model.save_pretrained(path)
    make_tokenizer(words).save_pretrained(path)
    return path, model
