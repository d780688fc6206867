"""Reasoning and answer in text: templates that open the tag, models that repeat it, thinking switched off."""

import pytest

from pipeline.traces import answer_text, opens_thinking, split_thinking, split_thinking_text

REASONING, ANSWER = "2+2 is 4, so double is 8.", r"The answer is \boxed{8}."


@pytest.mark.parametrize("opening", ["", "<think>\n"])
def test_the_opening_tag_may_be_in_the_prompt(opening):
    output = f"{opening}{REASONING}\n</think>\n\n{ANSWER}"
    assert split_thinking_text(output, "<think>", "</think>") == (REASONING, ANSWER)
    assert split_thinking_text(output, opened=True) == (REASONING, ANSWER)


def test_thinking_switched_off():
    prompt = "What is 8?\n<think>\n\n</think>\n\n"
    assert split_thinking_text(r"\boxed{8}", opened=opens_thinking(prompt)) == ("", r"\boxed{8}")
    assert split_thinking_text("<think>\n\n</think>\n\n\\boxed{8}") == ("", r"\boxed{8}")


def test_cut_off_while_thinking_has_no_answer():
    assert opens_thinking("What is 8?<think>\n")
    assert split_thinking_text("2+2 is", opened=True) == ("2+2 is", "")
    assert split_thinking_text("<think>\n2+2 is") == ("2+2 is", "")


def test_no_tag_text_is_left_in_either_part():
    reasoning, answer = split_thinking_text("<think>a <think> b</think>c </think> d</th</think>ink>")
    assert (reasoning, answer) == ("a  b", "c  d")


def test_other_tags():
    assert split_thinking_text("[r]x[/r]y", "[r]", "[/r]") == ("x", "y")


def test_answer_text_is_what_follows_the_first_tag(word_tokenizer):
    tokens = word_tokenizer.encode("a\nb</think> c d<eos>", add_special_tokens=False)
    assert answer_text(tokens, split_thinking(tokens, word_tokenizer), word_tokenizer) == "c d"
    cut = word_tokenizer.encode("a\nb", add_special_tokens=False)
    assert answer_text(cut, split_thinking(cut, word_tokenizer), word_tokenizer) == ""
