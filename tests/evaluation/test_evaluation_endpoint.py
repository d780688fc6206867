"""The endpoint as a source of traces: what is sent, what is read, and that every failure counts once."""

import asyncio
import json

import httpx
import pytest

from pipeline.config import Evaluation
from pipeline.evaluation import EndpointClient, to_trace, version_of
from pipeline.problems import Problem, sample_seed
from pipeline.traces import Stop, VersionSpan

PROBLEM = Problem("p", "What is 4 + 3?", "7", "tiny/chain_sum")


def reply(**changes):
    message = {"role": "assistant", "content": "The answer is 7.", "reasoning": "4 + 3 = 7\n"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": [5, 6, 7]}
    for key in ("finish_reason", "token_ids", "message"):
        if key in changes:
            choice[key] = changes.pop(key)
    whole = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "system_fingerprint": "v12-abcdef",
        "prompt_token_ids": [1, 2],
        "choices": [choice],
    }
    return {**whole, **changes}


def test_version_of():
    assert version_of("v0-12ab") == 0 and version_of("v12-abc-def") == 12


@pytest.mark.parametrize("fingerprint", [None, "", "fp_12", "v-abc", "vx-1"])
def test_no_version_no_guess(fingerprint):
    with pytest.raises(ValueError):
        version_of(fingerprint)


def test_trace_by_token_ids():
    found = to_trace(PROBLEM, 3, reply())
    assert (found.problem_id, found.sample, found.stop) == ("p", 3, Stop.EOS)
    assert (found.prompt_ids, found.token_ids, found.logprobs) == ((1, 2), (5, 6, 7), (0.0, 0.0, 0.0))
    assert found.versions == (VersionSpan(12, 0, 3),)
    assert found.text == "4 + 3 = 7\nThe answer is 7."
    assert to_trace(PROBLEM, 0, reply(finish_reason="length")).stop is Stop.LENGTH


def test_trace_without_reasoning_or_content():
    assert to_trace(PROBLEM, 0, reply(message={"content": None, "reasoning_content": "hm"})).text == "hm"
    assert to_trace(PROBLEM, 0, reply(message={"content": "seven"})).text == "seven"


@pytest.mark.parametrize(
    "changes,reason",
    [
        ({"token_ids": None}, "return_token_ids"),
        ({"finish_reason": "abort"}, "finish_reason='abort'"),
        ({"finish_reason": None}, "finish_reason=None"),
        ({"system_fingerprint": None}, "which weights made it"),
        ({"choices": []}, "no choices"),
        ({"choices": None}, "no choices"),
    ],
)
def test_replies_that_cannot_be_used(changes, reason):
    with pytest.raises(ValueError, match=reason):
        to_trace(PROBLEM, 0, reply(**changes))


def ask_all(handler, problems=(PROBLEM,), on_done=lambda count: None, extra=None, **options):
    """All replies through `handler(body) -> httpx.Response` in place of a server, and the bodies sent."""
    sent, headers = [], []

    async def answer(request):
        sent.append(json.loads(request.content))
        headers.append(str(request.url))
        return await handler(sent[-1])

    async def run():
        client = EndpointClient("http://endpoint:8000/", "policy", Evaluation(**options), 64, extra=extra)
        mock = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        client.client = client.client.with_options(http_client=mock)
        try:
            return await client.ask_all(problems, 9, on_done)
        finally:
            await client.close()

    replies = asyncio.run(run())
    assert set(headers) <= {"http://endpoint:8000/v1/chat/completions"}
    return replies, sent


async def fine(body):
    return httpx.Response(200, json=reply())


def test_what_is_sent():
    counted = []
    replies, sent = ask_all(fine, on_done=counted.append, samples=2, temperature=0.6, top_p=0.9)
    assert replies.requests == 2 and replies.failures == [] and counted == [1, 1]
    assert sorted(trace.sample for trace in replies.traces) == [0, 1]
    for body in sent:
        assert body["messages"] == [{"role": "user", "content": "What is 4 + 3?"}]
        assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"]) == ("policy", 64, 0.6, 0.9)
        assert body["return_token_ids"] is True
    body = ask_all(fine, extra={"thinking_token_budget": 0})[1][0]
    assert body["thinking_token_budget"] == 0 and body["return_token_ids"] is True
    assert {body["seed"] for body in sent} == {sample_seed(f"p/{sample}", 0, 9) for sample in (0, 1)}


@pytest.mark.parametrize(
    "response,kind",
    [
        (httpx.Response(503, json={"error": {"message": "busy"}}), "InternalServerError"),
        (httpx.Response(429, json={"error": {"message": "later"}}), "RateLimitError"),
        (httpx.Response(404, json={"error": {"message": "no model"}}), "NotFoundError"),
        (httpx.Response(200, json=reply(token_ids=None)), "ValueError"),
        (httpx.Response(200, json=reply(choices=[])), "ValueError"),
        (httpx.ConnectError("refused"), "APIConnectionError"),
        (httpx.ReadTimeout("slow"), "APITimeoutError"),
    ],
)
def test_a_failure_is_counted_with_its_reason_and_never_retried(response, kind):
    async def handler(body):
        if body["seed"] == sample_seed("p/1", 0, 9):
            if isinstance(response, Exception):
                raise response
            return response
        return await fine(body)

    counted = []
    replies, sent = ask_all(handler, on_done=counted.append, samples=3)
    assert len(sent) == 3 and replies.requests == 3 and len(counted) == 3
    assert len(replies.traces) == 2 and len(replies.failures) == 1 and replies.failures[0].startswith(f"{kind}: ")


def test_no_more_than_concurrency_at_a_time():
    under_way, most = 0, 0

    async def handler(body):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.005)
        under_way -= 1
        return await fine(body)

    problems = [Problem(f"p{i}", f"What is {i}?", str(i), "test") for i in range(6)]
    replies, sent = ask_all(handler, problems, samples=2, concurrency=3)
    assert len(replies.traces) == len(sent) == 12 and most == 3
    assert len({body["seed"] for body in sent}) == 12
