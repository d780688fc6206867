"""Characters and tokens: the mapping is a partition whatever the tokenizer cuts through."""

import random

import pytest

from pipeline.traces import segment, segment_texts, split_thinking, token_offsets

TRACE = "Café costs 5 €. 🪿\n\n龘 gives 7.\n\nDone: 12."


def random_text(rng):
    ranges = [(0x20, 0x7E), (0xA0, 0x24F), (0x600, 0x6FF), (0x900, 0x97F), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF)]
    pieces = ["\n", "\n\n", " Wait", ".\n\n", "But", "\u200f", "e\u0301"]
    signs = [chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(0, 25))]
    return "".join(rng.choice(pieces) if rng.random() < 0.15 else sign for sign in signs)


def check_partition(text, tokenizer):
    tokens = tokenizer.encode(text, add_special_tokens=False)
    offsets = token_offsets(tokens, tokenizer)
    assert offsets.text == text
    assert len(offsets.starts) == len(tokens)
    assert list(offsets.starts) == sorted(offsets.starts)
    return tokens, offsets


def test_200_random_unicode_strings(byte_tokenizer):
    rng = random.Random(0)
    for _ in range(200):
        text = random_text(rng)
        tokens, offsets = check_partition(text, byte_tokenizer)
        cuts = sorted({0, len(text), *(rng.randint(0, len(text)) for _ in range(3))})
        spans = [offsets.token_span(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
        assert [i for a, b in spans for i in range(a, b)] == list(range(len(tokens)))
        thinking = split_thinking(tokens, byte_tokenizer)
        parts = [tokens[a:b] for a, b in segment(tokens, byte_tokenizer)]
        parts += [tokens[thinking.think_length : thinking.answer_start], tokens[thinking.answer_start :]]
        assert "".join(byte_tokenizer.decode(part) for part in parts) == text


@pytest.mark.parametrize("name", ["byte_tokenizer", "fused_tokenizer"])
def test_spans_of_paragraphs_partition_the_tokens(name, request):
    tokenizer = request.getfixturevalue(name)
    tokens, offsets = check_partition(TRACE, tokenizer)
    start = TRACE.index("龘")
    end = start + len("龘 gives 7.")
    spans = [offsets.token_span(a, b) for a, b in ((0, start), (start, end), (end, len(TRACE)))]
    assert [i for a, b in spans for i in range(a, b)] == list(range(len(tokens)))
    texts = [tokenizer.decode(tokens[a:b]) for a, b in spans]
    assert "".join(texts) == TRACE
    # a token that also holds the blank line goes wholly to the paragraph it begins in
    assert texts[1] == ("龘 gives 7.\n\n" if name == "fused_tokenizer" else "龘 gives 7.")


def test_a_fused_period_and_blank_line_is_one_token(fused_tokenizer):
    tokens = fused_tokenizer.encode("7.\n\nDone", add_special_tokens=False)
    assert fused_tokenizer.decode(tokens[1:2]) == ".\n\n"


def test_a_character_of_several_tokens_begins_at_its_first(byte_tokenizer):
    tokens, offsets = check_partition("a🪿b", byte_tokenizer)
    assert len(tokens) == 6
    assert offsets.token_span(1, 2) == (1, 5)
    assert offsets.token_holding(1) == 1
    assert offsets.token_holding(2) == 5
    assert offsets.token_holding(3) == 6


def test_invalid_bytes_stay_where_they_are(byte_tokenizer):
    goose = byte_tokenizer.encode("🪿", add_special_tokens=False)
    word = byte_tokenizer.encode("Wait", add_special_tokens=False)
    tokens = goose[:2] + word + goose[:3] * 5 + word + goose[:1]
    offsets = token_offsets(tokens, byte_tokenizer)
    assert len(offsets.starts) == len(tokens)
    assert offsets.token_holding(offsets.text.index("Wait")) == 2
    assert offsets.token_holding(offsets.text.rindex("Wait")) == 2 + len(word) + 15


def test_end_of_sequence_belongs_to_the_answer(word_tokenizer):
    tokens = word_tokenizer.encode("a\nb</think>c<eos>", add_special_tokens=False)
    thinking = split_thinking(tokens, word_tokenizer)
    spans = segment(tokens, word_tokenizer)
    assert sum(b - a for a, b in spans) + 1 + len(tokens[thinking.answer_start :]) == len(tokens)
    assert word_tokenizer.decode(tokens[thinking.answer_start :]) == "c<eos>"


def test_segment_texts_hold_no_tag(word_tokenizer):
    tokens = word_tokenizer.encode("<think>a\nb Wait c\nd</think>c<eos>", add_special_tokens=False)
    assert segment_texts(tokens, segment(tokens, word_tokenizer), word_tokenizer) == ["a\nb", "Wait c\nd"]


def test_offsets_of_nothing(byte_tokenizer):
    offsets = token_offsets([], byte_tokenizer)
    assert (offsets.text, offsets.starts, offsets.token_span(0, 0)) == ("", (), (0, 0))
