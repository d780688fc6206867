"""Where thinking begins and ends, in the shipped model's tokens."""

import pytest
from transformers import AutoTokenizer

from pipeline.config import ROOT
from serve.inference.thinking_marks import ThinkingMarks


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(ROOT / "infra/models/tiny")


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("end", ["</think>", " = "])  # one token; some that are found in the text
def test_tokens_before_the_end(tokenizer, end):
    marks = ThinkingMarks("<think>", end, True, tokenizer)
    before, after = ids(tokenizer, "7 + 5"), ids(tokenizer, f"{end}12")
    prompt = ids(tokenizer, "What is 7 + 5?<think>\n")
    assert marks.reasoning_tokens(prompt, before + after) == len(before)
    assert marks.reasoning_tokens(prompt, before) == len(before) and marks.reasoning_tokens(prompt, []) == 0


def test_whether_a_reply_begins_with_thinking(tokenizer):
    opened, plain, closed = (ids(tokenizer, text) for text in ("5?<think>\n", "5?", "5?<think>\n</think>\n"))
    reply = ids(tokenizer, "7 + 5</think>12")
    for unopened in (True, False):
        marks = ThinkingMarks("<think>", "</think>", unopened, tokenizer)
        assert marks.thinks(opened) and not marks.thinks(closed) and marks.thinks(plain) == unopened
        assert marks.reasoning_tokens(closed, reply) == 0
        own = ids(tokenizer, "<think>7 + 5</think>12")
        assert marks.reasoning_tokens(plain, own) == len(own) - len(ids(tokenizer, "</think>12"))


def test_without_marks_nothing_is_thinking(tokenizer):
    marks = ThinkingMarks("", "", False, tokenizer)
    assert not marks.thinks([1]) and marks.reasoning_tokens([1], [2, 3]) == 0
    assert list(marks.parting([1]).feed("a</think>")) == [("answer", "a</think>")]
