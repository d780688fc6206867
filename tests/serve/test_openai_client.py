"""OpenAI's own client against a real endpoint of the shipped model."""

import asyncio
import json
import time

import httpx
import openai
import pytest

from pipeline.config import UserError
from serve import InferenceOptimizer
from serve import client as endpoint_client
from serve.access import AccessSettings
from serve.observation.samples import read_sample
from serve.token_counters import PHASES
from tests.serve.access.fake_app import ADMIN, INFER, KEYS
from tests.serve.live_endpoint import shipped_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUESTION = [{"role": "user", "content": "3 + 4 = ?"}]
NUMBER = {"type": "integer", "minimum": 10, "maximum": 99}  # the model's vocabulary has no quotation mark
BUDGET = 10


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with shipped_model(tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="module")
def ai(endpoint):
    return connected(endpoint, "no key is needed")


def connected(endpoint, key, root="/v1"):
    return openai.OpenAI(base_url=endpoint.url + root, api_key=key, max_retries=0, timeout=120)


def chat(ai, **options):
    return ai.chat.completions.create(**{"model": "policy", "messages": QUESTION, "max_tokens": 150} | options)


def complete(ai, **options):
    return ai.completions.create(**{"model": "policy", "prompt": "3 + 4 =", "max_tokens": 10} | options)


def respond(ai, **options):
    return ai.responses.create(**{"model": "policy", "input": "3 + 4 = ?", "max_output_tokens": 150} | options)


def as_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "number", "schema": schema, "strict": True}}


def number_of_tokens(endpoint, text):
    asked = {"prompt": text, "add_special_tokens": False}
    return connected(endpoint, "none", "").post("/tokenize", body=asked, cast_to=object)["count"]


def test_models(ai):
    assert [(model.id, model.root) for model in ai.models.list()] == [("policy", "policy")]
    assert ai.models.retrieve("policy").id == "policy"


def test_chat_parts_reasoning_from_the_answer(ai):
    reply = chat(ai, temperature=0)
    message, usage = reply.choices[0].message, reply.usage
    assert message.content.startswith("\nThe answer is \\boxed{") and message.reasoning.startswith("3 + ")
    assert "think>" not in message.content + message.reasoning
    assert reply.choices[0].finish_reason == "stop" and reply.system_fingerprint.startswith("v")
    assert reply.system_fingerprint in reply.id
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.completion_tokens > 20


def test_a_streamed_chat_is_the_same_in_pieces(ai):
    whole = chat(ai, temperature=0)
    events = list(chat(ai, temperature=0, stream=True, stream_options={"include_usage": True}))
    deltas = [event.choices[0].delta for event in events if event.choices]
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == whole.choices[0].message.reasoning
    assert {event.system_fingerprint for event in events} == {whole.system_fingerprint}
    assert len({event.id for event in events}) == 1 and events[-1].usage == whole.usage


def test_log_probabilities_and_several_replies(ai):
    reply = chat(ai, n=2, max_tokens=8, logprobs=True, top_logprobs=3, temperature=1)
    assert [choice.index for choice in reply.choices] == [0, 1] and reply.usage.completion_tokens == 16
    for choice in reply.choices:
        assert choice.finish_reason == "length" and len(choice.logprobs.content) == 8
        for token in choice.logprobs.content:
            best = [other.logprob for other in token.top_logprobs]
            assert len(best) >= 3 and 0 >= max(best) >= token.logprob  # the chosen one may come before better ones


def test_a_reply_ends_at_a_stop_string_and_repeats_by_seed(ai):
    stopped = chat(ai, temperature=0, stop=[" is"]).choices[0]
    assert stopped.finish_reason == "stop" and stopped.stop_reason == " is"
    assert " is" not in stopped.message.reasoning + (stopped.message.content or "")
    texts = [chat(ai, seed=seed, temperature=1.5).choices[0].message.reasoning for seed in (5, 5, 6, 7, 8)]
    assert texts[0] == texts[1] and len(set(texts)) > 1


def test_completions(ai):
    reply = complete(ai, logprobs=1, temperature=0, echo=True)
    choice = reply.choices[0]
    assert choice.text.startswith("3 + 4 =") and reply.usage.completion_tokens == 10
    assert len(choice.logprobs.tokens) == 10 + reply.usage.prompt_tokens
    many = complete(ai, prompt=["1 + 1 =", "2 + 2 ="], n=2, max_tokens=3)
    assert [each.index for each in many.choices] == [0, 1, 2, 3]
    assert "".join(event.choices[0].text for event in complete(ai, temperature=0, stream=True)) in choice.text


def test_responses(ai):
    reply = respond(ai, temperature=0)
    assert [item.type for item in reply.output] == ["reasoning", "message"] and reply.status == "completed"
    assert reply.output_text.startswith("\nThe answer is \\boxed{")
    assert reply.output[0].content[0].text.startswith("3 + ") and "</think>" not in reply.output_text
    events = list(respond(ai, temperature=0, stream=True))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response.output_text == reply.output_text


def test_structured_outputs_are_valid(ai):
    budget = {"thinking_token_budget": BUDGET}
    for seed in range(3):
        options = {"response_format": as_format(NUMBER), "extra_body": budget, "seed": seed, "temperature": 1.5}
        assert 10 <= json.loads(chat(ai, **options).choices[0].message.content) <= 99
        streamed = [event.choices[0].delta.content or "" for event in chat(ai, stream=True, **options)]
        assert 10 <= json.loads("".join(streamed)) <= 99
    choice = chat(ai, extra_body=budget | {"structured_outputs": {"choice": ["yes", "no"]}}).choices[0]
    assert choice.message.content in ("yes", "no")
    told = {"format": {"type": "json_schema", "name": "number", "schema": NUMBER, "strict": True}}
    reply = respond(ai, text=told, max_output_tokens=450)
    if reply.status == "completed":  # it may think for longer than there is room
        assert 10 <= json.loads(reply.output_text) <= 99


@pytest.mark.parametrize("budget", [0, 1, BUDGET])
def test_thinking_keeps_to_its_budget(endpoint, ai, budget):
    for seed in range(3):
        reply = chat(ai, temperature=1, seed=seed, max_tokens=300, extra_body={"thinking_token_budget": budget})
        message = reply.choices[0].message
        assert number_of_tokens(endpoint, message.reasoning or "") <= budget and message.content


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (openai.BadRequestError, lambda ai: chat(ai, max_tokens=-1)),
        (openai.BadRequestError, lambda ai: chat(ai, messages=[])),
        (openai.BadRequestError, lambda ai: complete(ai, prompt="1 " * 1000)),
        (openai.BadRequestError, lambda ai: chat(ai, response_format=as_format({"type": "nothing"}))),
        (openai.NotFoundError, lambda ai: chat(ai, model="other")),
        (openai.NotFoundError, lambda ai: ai.models.retrieve("other")),
        (openai.NotFoundError, lambda ai: ai.embeddings.create(model="policy", input="x")),
        (openai.APIStatusError, lambda ai: complete(ai, prompt="x" * (2 << 20))),
    ],
)
def test_mistakes_become_the_clients_own_errors(ai, kind, ask):
    with pytest.raises(kind) as caught:
        ask(ai)
    assert caught.value.body["message"] and caught.value.body["code"] == caught.value.status_code < 500


def test_keys_and_rates_become_the_clients_own_errors(endpoint, monkeypatch):
    if not endpoint.dashboard:
        pytest.skip("keys are only set on an endpoint that this test started")
    monkeypatch.setenv(endpoint_client.KEY_VARIABLE, ADMIN)
    locked = AccessSettings(keys=KEYS, requests_per_minute=2)
    endpoint_client.set_access(endpoint.dashboard, locked.to_config(), 60)
    try:
        with pytest.raises(openai.AuthenticationError):
            connected(endpoint, "sk-wrong").models.list()
        ai = connected(endpoint, INFER)
        assert [model.id for model in ai.models.list()] == ["policy"]
        with pytest.raises(openai.PermissionDeniedError):
            connected(endpoint, INFER, "").get("/metrics", cast_to=str)
        for _ in range(2):
            assert complete(ai, max_tokens=1).usage.completion_tokens == 1
        with pytest.raises(openai.RateLimitError) as caught:
            complete(ai, max_tokens=1)
        assert int(caught.value.response.headers["retry-after"]) >= 1
    finally:
        endpoint_client.set_access(endpoint.dashboard, AccessSettings().to_config(), 60)


def test_tokens_are_counted_by_phase(endpoint, ai):
    before = told(endpoint)
    usage = chat(ai).usage
    for event in chat(ai, stream=True):  # a stream tells Prometheus what it does not tell this client
        assert event.usage is None
    thought = usage.completion_tokens_details.reasoning_tokens
    assert 0 < thought < usage.completion_tokens
    added = {name: now - before[name] for name, now in told(endpoint).items()}
    assert added["prompt"] == 2 * usage.prompt_tokens and added["reasoning"] > thought
    assert sum(added[name] for name in ("reasoning", "answer")) == added["generated"]


def told(endpoint):
    page = httpx.get(f"{endpoint.url}/metrics", timeout=60, trust_env=False).text
    values = read_sample(page, 0).values
    found = {"generated": values["vllm:generation_tokens_total"]}
    for line in page.splitlines():
        if line.startswith("decs_tokens_total{phase="):
            found[line.split('"')[1]] = float(line.split()[-1])
    return dict.fromkeys(PHASES, 0.0) | found


def test_inferences_from_python(endpoint):
    async def asked():
        async with InferenceOptimizer(base_url=endpoint.url) as optimizer:
            results = await asyncio.gather(
                *(optimizer.infer("3 + 4 = ?", thinking_budget=BUDGET, seed=seed) for seed in range(4))
            )
            for lever, why in (({"use_speculative": True}, "drafts nothing"), ({"priority": 1}, "first come")):
                with pytest.raises(UserError, match=why):
                    await optimizer.infer("3 + 4 = ?", **lever)
            with pytest.raises(TimeoutError, match="the endpoint http"):
                await optimizer.infer("3 + 4 = ?", timeout_s=0.001)
            end = time.monotonic() + 10
            while endpoint.busy() and time.monotonic() < end:  # the late one was aborted
                await asyncio.sleep(0.1)
            assert endpoint.busy() == 0
            return results

    for result in asyncio.run(asked()):
        assert 0 < result.reasoning_tokens <= BUDGET + 1 and result.reasoning
        assert result.answer_tokens > 0 and result.acceptance is None and result.weights.startswith("v0-")
        assert result.effective["thinking_budget"] == BUDGET and result.effective["speculative"] is False
