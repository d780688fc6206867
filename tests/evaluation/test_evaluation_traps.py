"""Ways in which a score can be wrong without a word: the prompt's own numbers, tags in other places, other scripts."""

import asyncio

import pytest

from pipeline.config import Evaluation
from pipeline.config.schema import Judge
from pipeline.evaluation import EndpointClient, dissect, score_traces
from pipeline.evaluation.graders import grader_for
from pipeline.evaluation.suites import Kind
from pipeline.grading import Verdict
from pipeline.judge import JudgeActor
from pipeline.loop.collect import Prompts
from pipeline.problems import Problem
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Marks, Stop, Trace, VersionSpan, answer_text, split_thinking
from tests.evaluation.fake_endpoint import serving

TOKENIZER = build_tokenizer()
MARKS = Marks.from_tokenizer(TOKENIZER)


def encoded(text):
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


def trace(problem, text, prompt_ids=(1,)):
    ids = encoded(text)
    return Trace(problem.id, 0, prompt_ids, ids, (0.0,) * len(ids), (VersionSpan(0, 0, len(ids)),), Stop.EOS, text)


def scored(problem, text, prompt_ids=(1,)):
    judge = JudgeActor(Judge())
    return asyncio.run(
        score_traces([trace(problem, text, prompt_ids)], {problem.id: problem}, TOKENIZER, MARKS, judge)
    )[0]


def test_a_number_in_the_prompt_is_never_the_answer():
    problem = Problem("p", "The answer is \\boxed{42}. What is 6 * 7? The answer is 42.", "42", "s")
    ids = tuple(Prompts(TOKENIZER, "The answer is \\boxed{42}.", 500).ids(problem))
    assert TOKENIZER.decode(ids).count("\\boxed{42}") == 2
    found = scored(problem, "Let me check it.\nWait, is it right?\n</think>\nWhat is it?<eos>", ids)
    assert found.correct is False and found.prefix_length is None
    right = scored(problem, "So the answer is 42.\n</think>\nThe answer is \\boxed{42}.<eos>", ids)
    assert right.correct and right.prefix_length


@pytest.mark.parametrize("kind", [Kind.CHOICE, Kind.MATH])
def test_a_prompt_is_never_given_to_a_grader(kind):
    problem = Problem("p", "The answer is \\boxed{B}.", "B", "s")
    grade = grader_for(kind, Evaluation())
    assert grade("Let me check it.", problem, 1) is Verdict.WRONG
    assert grade("\\boxed{B}", problem, 1) is Verdict.RIGHT


def test_an_opening_tag_of_the_models_own_changes_nothing():
    problem = Problem("p", "What is 4 + 4?", "8", "s")
    thinking = "4 + 4 = 8\nSo the answer is 8.\nWait, let me check that again.\n4 + 4 = 8\n"
    body = thinking + "</think>\nThe answer is \\boxed{8}.<eos>"
    plain, opened = scored(problem, body), scored(problem, "<think>\n" + body)
    assert plain.correct and opened.correct
    extra = len(encoded("<think>\n"))
    assert opened.prefix_length == plain.prefix_length + extra and opened.think_length == plain.think_length + extra
    texts = [
        answer_text(t.trace.token_ids, split_thinking(t.trace.token_ids, MARKS), TOKENIZER) for t in (plain, opened)
    ]
    assert texts == ["The answer is \\boxed{8}."] * 2
    for one in (plain, opened):
        assert one.segments[0][0] == 0 and one.segments[-1][1] == one.think_length


def test_thinking_switched_off_leaves_no_thinking_to_share():
    found = dissect(trace(Problem("p", "?", "8", "s"), "</think>\nThe answer is \\boxed{8}.<eos>"), MARKS)
    assert (found.think_length, found.segments, found.ends_seen) == (0, (), 1)


class Echo:
    """Replies with the question and remembers it, byte for byte."""

    def __init__(self):
        self.asked = []

    def reply(self, body):
        text = body["messages"][0]["content"]
        self.asked.append(text)
        message = {"role": "assistant", "content": text, "reasoning": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": [5]}
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]}
        return 200, {**whole, "system_fingerprint": "v0-a", "prompt_token_ids": [1]}


@pytest.mark.parametrize(
    "text",
    ["दो और दो कितने होते हैं?", "สองบวกสองได้เท่าไร", "e\u0301 n\u0303 \u200f12\u200e", "６４ ٤٢ −7 3{,}5", "龘 🪿 \u2028"],
)
def test_any_script_goes_through_http_unchanged(text):
    endpoint = Echo()

    async def ask(url):
        client = EndpointClient(url, "policy", Evaluation(), 8)
        try:
            return await client.ask(Problem("p", text, "1", "s"), 0, 0)
        finally:
            await client.close()

    with serving(endpoint) as url:
        found = asyncio.run(ask(url))
    assert endpoint.asked == [text] and found.text.encode() == (text + text).encode()
