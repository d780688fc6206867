"""Reasoning and answer of a response: templates that open the tag, models that repeat it, thinking switched off."""

import pytest

from pipeline.evaluation import dissect
from pipeline.grading import Verdict, grade_response
from pipeline.judge import ExactJudge, JudgeItem
from pipeline.traces import (
    Marks,
    Stop,
    Trace,
    VersionSpan,
    answer_text,
    closes_thinking,
    segment,
    segment_texts,
    split_thinking,
    without_tags,
)

REASONING, ANSWER = "2+2 is 4, so double is 8.", r"The answer is \boxed{8}."
OPENED, CLOSED = "What is double 2+2?\n<think>\n", "What is double 2+2?\n<think>\n\n</think>\n\n"


@pytest.fixture(params=["byte_tokenizer", "untagged_tokenizer"])
def tokenizer(request):
    """The closing tag as one token, and as several."""
    return request.getfixturevalue(request.param)


def encode(tokenizer, text):
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def parts(tokenizer, prompt, output):
    """Reasoning, answer, verdict and what the judge says of each segment."""
    ids, marks = encode(tokenizer, output), Marks.from_tokenizer(tokenizer)
    trace = Trace("p", 0, encode(tokenizer, prompt), ids, (), (VersionSpan(0, 0, len(ids)),), Stop.EOS, output)
    found = dissect(trace, marks)
    answer = answer_text(ids, found, tokenizer)
    texts = segment_texts(ids, found.segments, tokenizer)
    judged = ExactJudge().judge([JudgeItem("", "8", text) for text in texts])
    return "".join(texts), answer, grade_response(answer, "8", found.ends_seen), judged


@pytest.mark.parametrize("opening", ["", "<think>\n"])
def test_the_opening_tag_may_be_in_the_prompt(tokenizer, opening):
    output = f"{opening}{REASONING}\n</think>\n\n{ANSWER}"
    assert parts(tokenizer, OPENED, output) == (REASONING, ANSWER, Verdict.RIGHT, [0.0])
    said = output.replace(REASONING, f"{REASONING} The answer is 8.")
    assert parts(tokenizer, OPENED, said)[2:] == (Verdict.RIGHT, [1.0])


def test_thinking_switched_off(tokenizer):
    assert parts(tokenizer, CLOSED, r"\boxed{8}") == ("", r"\boxed{8}", Verdict.RIGHT, [])
    assert parts(tokenizer, CLOSED, r"\boxed{9}")[2] is Verdict.WRONG
    assert parts(tokenizer, CLOSED, r"hm</think>\boxed{8}")[2] is Verdict.WRONG  # it closes its thinking twice


def test_a_tag_in_the_question_does_not_switch_thinking_off(tokenizer):
    marks = Marks.from_tokenizer(tokenizer)
    for prompt, closes in ((CLOSED, True), (OPENED, False), ("What does </think> mean?\n", False), ("", False)):
        assert closes_thinking(encode(tokenizer, prompt), marks) is closes
    assert parts(tokenizer, "What does </think> mean?\n", r"\boxed{8}")[2] is Verdict.WRONG


def test_cut_off_while_thinking_has_no_answer(tokenizer):
    ids = encode(tokenizer, "2+2 is")
    thinking = split_thinking(ids, tokenizer)
    assert (thinking.think_length, thinking.ends_seen) == (len(ids), 0)
    assert answer_text(ids, thinking, tokenizer) == ""


def test_no_tag_text_is_left_in_any_part(tokenizer):
    ids = encode(tokenizer, "<think>a <think> b\nWait c\nd</think>e")
    assert not any("think>" in text for text in segment_texts(ids, segment(ids, tokenizer), tokenizer))
    assert without_tags("<think>a <think> b</th</think>ink>") == "a  b"
    assert without_tags("[r]x[/r]", "[r]", "[/r]") == "x"


def test_answer_text_is_what_follows_the_first_tag(word_tokenizer):
    tokens = word_tokenizer.encode("a\nb</think> c d<eos>", add_special_tokens=False)
    assert answer_text(tokens, split_thinking(tokens, word_tokenizer), word_tokenizer) == "c d"
    cut = word_tokenizer.encode("a\nb", add_special_tokens=False)
    assert answer_text(cut, split_thinking(cut, word_tokenizer), word_tokenizer) == ""
