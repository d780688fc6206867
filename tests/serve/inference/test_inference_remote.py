"""A server's stream becomes a result; what it refuses, fails at or leaves unfinished is told, each in its way."""

import asyncio
import json
from collections import Counter

import httpx
import pytest

from pipeline.config import UserError
from serve import InferenceOptimizer
from serve.inference.endpoint import RemoteEngine
from serve.inference.result import Acceptance, InferenceFailed
from serve.speculation.settings import SCHEDULER

DRAFTS = {"num_draft_tokens": 8, "num_accepted_draft_tokens": 6}
USAGE = {"prompt_tokens": 11, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}}
EFFECTIVE = {
    "speculative_config.method": "ngram", "speculative_config.num_speculative_tokens": 4, "scheduler_cls": SCHEDULER,
    "reasoning_parser": "deepseek_r1", "scheduling_policy": "priority",
}  # fmt: skip


def delta(ids, finish=None, **text):
    return {"system_fingerprint": "v3-ab", "choices": [{"delta": text, "token_ids": ids, "finish_reason": finish}]}


WHOLE = [
    delta([], role="assistant", content=""),
    delta([1, 2], reasoning="so "),
    delta([3, 4, 5, 6], reasoning="it is"),
    delta([7, 8], content="18"),
    delta([9], "stop", content=""),
    {"system_fingerprint": "v3-ab", "choices": [], "usage": USAGE, "metrics": {"speculative_decoding": DRAFTS}},
]


class Server:
    """What a server answers: `events`, then `[DONE]` where `done`; `left` counts streams that were closed."""

    def __init__(self, events=WHOLE, *, status=200, done=True, hangs=False, effective=EFFECTIVE, models=("policy",)):
        self.events, self.status, self.done, self.hangs = events, status, done, hangs
        self.effective, self.models = effective, models
        self.asked, self.left = [], 0

    def answer(self, request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": name} for name in self.models]})
        if request.url.path == "/admin/effective-config":
            found = {"effective": self.effective}
            return httpx.Response(403) if self.effective is None else httpx.Response(200, json=found)
        self.asked.append(json.loads(request.content))
        if self.status != 200:
            return httpx.Response(self.status, json={"error": {"message": "not now"}})
        return httpx.Response(200, stream=Events(self))


class Events(httpx.AsyncByteStream):
    def __init__(self, server):
        self.server = server

    async def __aiter__(self):
        for event in self.server.events:
            yield b"data: %s\n\n" % json.dumps(event).encode()
        if self.server.hangs:
            await asyncio.sleep(60)
        if self.server.done:
            yield b"data: [DONE]\n\n"

    async def aclose(self):
        self.server.left += 1


def infer(server, model=None, **asked):
    async def one():
        optimizer = InferenceOptimizer(base_url="http://there/v1")
        transport = httpx.MockTransport(server.answer)
        optimizer._backend = RemoteEngine("http://there/v1", "key", model, optimizer.counters, transport)
        async with optimizer:
            try:
                return await optimizer.infer("2 + 2", **asked)
            finally:
                server.counters = optimizer.counters

    return asyncio.run(one())


def test_a_whole_reply():
    server = Server()
    result = infer(server, max_draft_tokens=2, thinking_budget=6, priority=3, max_tokens=20, seed=1)
    assert (result.text, result.reasoning, result.finish, result.weights) == ("18", "so it is", "stop", "v3-ab")
    assert (result.prompt_tokens, result.reasoning_tokens, result.answer_tokens) == (11, 5, 4)
    assert result.acceptance == Acceptance(8, 6) and result.acceptance.share == 0.75
    assert 0 < result.first_token_s <= result.total_s and result.effective["max_draft_tokens"] == 2
    (sent,) = server.asked
    assert sent["vllm_xargs"] == {"max_draft_tokens": 2} and sent["thinking_token_budget"] == 6
    assert sent["priority"] == 3 and sent["seed"] == 1 and sent["stream"] and "temperature" not in sent
    assert server.counters == Counter(requests=1, aborted=0)


def test_without_details_tokens_of_events_with_reasoning_count():
    plain = USAGE | {"completion_tokens_details": {"reasoning_tokens": 0}}
    result = infer(Server([*WHOLE[:-1], {"choices": [], "usage": plain}]))
    assert (result.reasoning_tokens, result.answer_tokens, result.acceptance) == (6, 3, None)


def test_levers_of_an_endpoint_that_does_not_tell_are_refused():
    server = Server(effective=None)
    assert infer(server).effective["speculative"] is None
    for asked in ({"use_speculative": True}, {"thinking_budget": 5}, {"priority": 1}):
        with pytest.raises(UserError, match="with a key of the scope admin"):
            infer(server, **asked)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("server", "error", "part"),
    [
        (Server(status=400), UserError, "the endpoint http://there answers 400: not now"),
        (Server(status=503), InferenceFailed, "answers 503: not now"),
        (Server(WHOLE[:3], done=False), InferenceFailed, "ended its reply before it was whole"),
        (Server([*WHOLE[:2], {"error": {"message": "engine died"}}]), InferenceFailed, "engine died"),
        (Server(models=("a", "b")), UserError, "serves a, b, not None"),
    ],
)
def test_what_is_no_reply(server, error, part):
    with pytest.raises(error) as caught:
        infer(server)
    assert part in str(caught.value)


def test_a_late_reply_is_left():
    server = Server(WHOLE[:3], hangs=True)
    with pytest.raises(TimeoutError, match=r"the endpoint http://there gave no whole reply within 0.2 s: 8 characters"):
        infer(server, timeout_s=0.2)
    assert server.left == 1 and server.counters == Counter(requests=1, timeouts=1, aborted=1)


def test_nobody_answers():
    async def one():
        async with InferenceOptimizer(base_url="http://127.0.0.1:9"):
            pass

    with pytest.raises(UserError, match="does not answer /v1/models"):
        asyncio.run(one())
