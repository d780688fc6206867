"""Tokenizers of each kind: whole words as tokens, byte-level pieces, and one with `.` and a blank line as one token."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = ("Wait", "But", "Alternatively", "Hmm", "Let", "Therefore")
TAGS = ("<think>", "</think>", "<eos>")
CORPUS = ["Wait, Let us add 3 and 4. But hmm.\n\nTherefore the answer is 12.\n", "Café costs 5 €.\n\n"] * 30


def _byte_level(vocab_size, corpus, tags=TAGS):
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    )
    raw.add_special_tokens([AddedToken(tag, special=True) for tag in tags])
    return PreTrainedTokenizerFast(tokenizer_object=raw)


@pytest.fixture(scope="session")
def byte_tokenizer():
    """300 entries: most words are several tokens, so marks are matched by text."""
    return _byte_level(300, CORPUS)


@pytest.fixture(scope="session")
def untagged_tokenizer():
    """Byte-level, and `</think>` is an ordinary string of several tokens."""
    return _byte_level(300, CORPUS, tags=("<eos>",))


@pytest.fixture(scope="session")
def fused_tokenizer():
    """Byte by byte, save that a period and a blank line are one token."""
    raw = Tokenizer.from_str(_byte_level(256, []).backend_tokenizer.to_str())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(".\n\n", behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.add_tokens([AddedToken(".\n\n", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=raw)


@pytest.fixture(scope="session")
def word_tokenizer():
    """Every split word (with and without its space) and the newline are single tokens; ` \\n` and `.\\n` are not."""
    pieces = [lead + word for word in WORDS for lead in (" ", "")]
    pieces += [f" {c}" for c in "abcdefgxyz"] + list("abcdefgxyz0123456789") + ["\n", " ", ".", ",", "?", "="]
    vocab = {piece: i for i, piece in enumerate(["<unk>", *pieces])}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    longest = sorted(pieces, key=len, reverse=True)
    pattern = "|".join(p.replace(".", r"\.").replace("?", r"\?") for p in longest)
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    raw.decoder = decoders.Fuse()
    raw.add_special_tokens([AddedToken(tag, special=True) for tag in TAGS])
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
