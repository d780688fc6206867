"""The tiny tokenizer: text and ids map one to one, and the saved one is the same for whoever loads it."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.problems.tiny import FAMILIES, generate
from pipeline.problems.tiny_lessons import Overthinking, demonstrate
from pipeline.problems.tiny_tokenizer import build_tokenizer, save_tokenizer
from pipeline.traces import Marks
from pipeline.traces.marks import SPLIT_STRINGS

TOKENIZER = build_tokenizer()
UNKNOWN = TOKENIZER.convert_tokens_to_ids("<unk>")
FAMILY = pytest.mark.parametrize("family", FAMILIES)


def encode(text, tokenizer=TOKENIZER):
    return tokenizer.encode(text, add_special_tokens=False)


def prompt(problem, tokenizer=TOKENIZER):
    messages = [{"role": "user", "content": problem.prompt}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def lessons(family, count, split="train"):
    """Rendered prompts and demonstrations, of the widest problems a family has too."""
    widest = {"chain_sum": {"max_terms": 11}, "search": {"min_numbers": 2}, "compare": {"max_terms": 6}}
    rng = random.Random(family)
    for options in ({}, widest[family]):
        for problem in generate(family, count, split, 11, options):
            yield prompt(problem) + demonstrate(problem, Overthinking(slip=0.3), rng) + "<eos>"


@FAMILY
def test_lessons_round_trip_without_unknowns(family):
    for text in lessons(family, 120):
        ids = encode(text)
        assert UNKNOWN not in ids, text
        assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


PROBLEMS = [p for family in FAMILIES for p in generate(family, 40, "held_out", 2, {})]


@given(st.sampled_from(PROBLEMS), st.integers(0, 2**32), st.floats(0, 0.5), st.integers(0, 3), st.integers(0, 2))
def test_any_lesson_round_trips(problem, seed, slip, least, more):
    text = demonstrate(problem, Overthinking(slip, (least, least + more)), random.Random(seed)) + "<eos>"
    ids = encode(text)
    assert UNKNOWN not in ids and TOKENIZER.decode(ids, skip_special_tokens=False) == text
    assert "".join(TOKENIZER.decode([i], skip_special_tokens=False) for i in ids) == text


@given(st.lists(st.integers(-99, 99), min_size=1, max_size=5))
def test_numbers_are_single_tokens_the_same_everywhere(numbers):
    text = " + ".join(map(str, numbers))
    ids = encode(text)
    assert len(ids) == 2 * len(numbers) - 1
    assert ids[::2] == [encode(str(number))[0] for number in numbers]
    assert encode(f"\\boxed{{{numbers[0]}}}")[2] == ids[0]


def test_labels_are_the_same_token_everywhere():
    (label,) = encode("b")
    for text in ("b = 3", "a, b", "So the answer is a, b.", "a + b = 7"):
        assert label in encode(text)


def test_marks_are_single_tokens():
    marks = Marks.from_tokenizer(TOKENIZER)
    assert marks.by_text is False and len(marks.split_ids) == len(SPLIT_STRINGS)
    for text in (*SPLIT_STRINGS, "</think>", "<think>", "\n", "<eos>"):
        (only,) = encode(text)
        assert only != UNKNOWN and TOKENIZER.decode([only]) == text
    assert encode("</think>") == [marks.think_end_id]


def test_special_tokens():
    assert (TOKENIZER.pad_token, TOKENIZER.eos_token, TOKENIZER.unk_token) == ("<pad>", "<eos>", "<unk>")
    assert len({TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, TOKENIZER.unk_token_id}) == 3
    ids = encode("Wait</think>\nThe answer is 7.<eos>")
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "Wait</think>\nThe answer is 7."
    assert encode("grapefruit") == [UNKNOWN]


def test_the_template_opens_thinking():
    problem = PROBLEMS[0]
    assert prompt(problem) == f"<|user|>{problem.prompt}<|assistant|><think>\n"
    told = [{"role": "user", "content": "What is 1 + 1?"}, {"role": "assistant", "content": "2"}]
    assert TOKENIZER.apply_chat_template(told, tokenize=False) == "<|user|>What is 1 + 1?<|assistant|>2<eos>"


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory):
    """As engines, endpoint and jobs load it: by the model folder's config."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("model")
    save_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(TOKENIZER)}))
    return AutoTokenizer.from_pretrained(str(folder))


@FAMILY
def test_reloaded_tokenizer_gives_the_same_ids(family, reloaded):
    for text in lessons(family, 60, "held_out"):
        ids = encode(text, reloaded)
        assert ids == encode(text)
        assert reloaded.decode(ids, skip_special_tokens=False) == text
    for problem in generate(family, 30, "train", 5, {}):
        assert prompt(problem, reloaded) == prompt(problem)


def test_reloaded_tokenizer_is_the_same_in_all_else(reloaded):
    assert reloaded.get_vocab() == TOKENIZER.get_vocab() and len(reloaded) == len(TOKENIZER)
    assert reloaded.special_tokens_map == TOKENIZER.special_tokens_map
    assert reloaded.chat_template == TOKENIZER.chat_template
    assert Marks.from_tokenizer(reloaded) == Marks.from_tokenizer(TOKENIZER)
    batch = reloaded(["What is 4 + 3?", "What is 4?"])["input_ids"]
    assert batch == [encode("What is 4 + 3?"), encode("What is 4?")]
