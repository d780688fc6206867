"""The whole way in the tiny world: response, thinking part, segments, texts, verdicts, necessary prefix."""

import asyncio
import random

import pytest

from pipeline.config.schema import Judge
from pipeline.grading import Verdict, grade_response
from pipeline.judge import JudgeActor, PrefixRequest
from pipeline.problems.tiny import generate
from pipeline.problems.tiny_lessons import Overthinking, demonstrate
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Marks, answer_text, segment, segment_texts, split_thinking


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def test_its_marks_are_single_tokens(tokenizer):
    marks = Marks.from_tokenizer(tokenizer)
    assert (marks.by_text, len(marks.split_ids), len(marks.newline_ids)) == (False, 12, 1)


@pytest.mark.parametrize("family", ["chain_sum", "search", "compare"])
def test_the_prefix_ends_with_the_first_right_statement(family, tokenizer):
    rng, marks = random.Random(0), Marks.from_tokenizer(tokenizer)
    problems = generate(family, 30, "train", seed=0, options={})
    traces, requests = [], []
    for problem in problems:
        tokens = tokenizer.encode(demonstrate(problem, Overthinking(), rng) + "<eos>", add_special_tokens=False)
        spans = segment(tokens, marks)
        texts = segment_texts(tokens, spans, tokenizer)
        traces.append(tokens)
        requests.append(PrefixRequest(problem.id, problem.prompt, problem.gold, spans, texts))
    actor = JudgeActor(Judge())
    results = asyncio.run(actor.find_prefixes(requests))
    for problem, tokens, result in zip(problems, traces, results, strict=True):
        thinking = split_thinking(tokens, marks)
        answer = answer_text(tokens, thinking, tokenizer)
        right = grade_response(answer, problem.gold, thinking.ends_seen) is Verdict.RIGHT
        statement = f"So the answer is {problem.gold}.\n"
        if right:
            assert result.prefix_length is not None
        if result.prefix_length is not None:
            prefix = tokenizer.decode(tokens[: result.prefix_length])
            assert prefix.count(statement) == 1
            assert prefix.split(statement)[1].count("So the answer") == 0
            assert result.prefix_length <= thinking.think_length
