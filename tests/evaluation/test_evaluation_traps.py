"""Ways in which a score can be wrong without a word: the prompt's own numbers, tags in other places, other scripts."""

import asyncio

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pipeline.config import Evaluation
from pipeline.config.schema import Judge
from pipeline.evaluation import EndpointClient, dissect, score_traces
from pipeline.evaluation.graders import grader_for
from pipeline.evaluation.suites import Kind
from pipeline.grading import Verdict
from pipeline.judge import ExactJudge, JudgeActor, JudgeItem
from pipeline.loop.collect import Prompts
from pipeline.problems import Problem
from pipeline.problems.tiny_tokenizer import CHAT_TEMPLATE, build_tokenizer
from pipeline.traces import Marks, Stop, Trace, VersionSpan, answer_text, segment_texts, split_thinking
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


def by_bytes():
    """A tokenizer that writes any text: a token for each byte, the tag's own, and the tiny world's template."""
    core = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken("</think>", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=CHAT_TEMPLATE)


def test_an_example_in_the_prompt_earns_nothing():
    tokenizer = by_bytes()
    problem = Problem("p", "What is 6 times 7? Do not guess 42 without working.", "42", "s")
    prompt = tuple(Prompts(tokenizer, "Put the result in \\boxed{}, e.g. \\boxed{42}.", 500).ids(problem))
    assert "\\boxed{42}" in tokenizer.decode(prompt)

    def result(text):
        ids = tuple(tokenizer.encode(text, add_special_tokens=False))
        spans = (VersionSpan(0, 0, len(ids)),)
        one = Trace("p", 0, prompt, ids, (0.0,) * len(ids), spans, Stop.EOS, text)
        judge, marks = JudgeActor(Judge()), Marks.from_tokenizer(tokenizer)
        (found,) = asyncio.run(score_traces([one], {"p": problem}, tokenizer, marks, judge))
        asked = [JudgeItem(problem.prompt, "42", part) for part in segment_texts(ids, found.segments, tokenizer)]
        return found.correct, found.prefix_length, ExactJudge().judge(asked)

    assert result("I am not sure.") == (False, None, [])
    assert result("I am not sure.</think>I am not sure.") == (False, None, [0.0])
    assert result("So the answer is 42.</think>\\boxed{42}") == (True, 20, [1.0])


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
