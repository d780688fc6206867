"""What is wrong with a call, or with the server it goes to, is one sentence: a UserError, or InferenceFailed."""

import asyncio
from collections import Counter

import httpx
import pytest

from pipeline.config import UserError
from serve import InferenceOptimizer
from serve.inference.endpoint import RemoteEngine
from serve.inference.options import overrides_from
from serve.inference.request import ask_of
from serve.inference.result import InferenceFailed

MODELS = b'{"data": [{"id": "policy"}]}'
WHOLE = b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}\n\ndata: [DONE]\n\n'


def infer(models=MODELS, effective=b"{}", stream=WHOLE, prompt="hi", **asked):
    sent = []

    def answer(request):
        sent.append(request.url.path)
        bodies = {"/v1/models": models, "/admin/effective-config": effective}
        return httpx.Response(200, content=bodies.get(request.url.path, stream))

    async def one():
        optimizer = InferenceOptimizer(base_url="http://there")
        transport = httpx.MockTransport(answer)
        optimizer._backend = RemoteEngine("http://there", None, None, Counter(), transport)
        async with optimizer:
            sent.clear()
            return await optimizer.infer(prompt, **asked)

    try:
        return asyncio.run(one())
    finally:
        infer.sent = sent


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"num_speculative_tokens": 4, "spec_tokens": 5}, "speculation.k_max"),
        ({"model": "a", "model_path": "b"}, "model.path"),
    ],
)
def test_two_names_of_one_thing(options, key):
    with pytest.raises(UserError, match=f"are two names of {key}, with different values; give one"):
        overrides_from(options)
    with pytest.raises(UserError, match="two names"):
        InferenceOptimizer(**options)
    assert len(overrides_from(dict.fromkeys(options, 4))) == 1


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:99999", "http://[::1", "nonsense", 5])
def test_what_is_no_address(address):
    with pytest.raises(UserError, match="base_url .* is no address of a server"):
        InferenceOptimizer(base_url=address)


@pytest.mark.parametrize("key", ["é", "a\nb", 5])
def test_what_is_no_key(key):
    with pytest.raises(UserError, match="api_key has signs that no key has"):
        InferenceOptimizer(base_url="http://127.0.0.1:1", api_key=key)


def test_an_option_that_no_config_holds():
    with pytest.raises(UserError, match="`max_num_seqs` is .* which no config holds"):
        overrides_from({"max_num_seqs": object()})


@pytest.mark.parametrize(
    "prompt", [5, None, [], {}, b"hi", ["hi"], [{"role": "user"}], [{"role": 1, "content": "a"}],
               [{"role": "user", "content": 3}], [{"role": "user", "content": [object()]}], "\ud800", iter(["a"])],
)  # fmt: skip
def test_what_is_no_prompt(prompt):
    with pytest.raises(UserError, match="a prompt is"):
        infer(prompt=prompt)
    assert not infer.sent


@pytest.mark.parametrize(
    ("lever", "value"),
    [
        *(("temperature", value) for value in (-0.1, float("nan"), float("inf"), "1", True)),
        *(("top_p", value) for value in (0, 1.1, -1, float("nan"), "x")),
        *(("seed", value) for value in (1.5, "1", True, 2**64)),
        *(("timeout_s", value) for value in (0, -1, None, "5", float("nan"), float("inf"))),
        *(("use_speculative", value) for value in (0, 1, "yes")),
        *(("priority", value) for value in (None, 1.5, "high")),
        *(("max_tokens", value) for value in (0, 2.0, "9")),
    ],
)
def test_a_lever_of_the_wrong_kind_or_range(lever, value):
    with pytest.raises(UserError, match=f"^{lever} is .*; give "):
        infer(**{lever: value})
    assert not infer.sent


def test_edges_that_are_fine():
    ask = ask_of("", {"temperature": 0, "top_p": 1, "seed": -1, "timeout_s": 1, "use_speculative": None})
    assert (ask.temperature, ask.top_p, ask.seed) == (0, 1, -1)


@pytest.mark.parametrize("models", [b"[1,2]", b"null", b"{}", b'{"data": [{}]}', b'{"data": 5}', b"<html>", b""])
def test_a_list_of_models_that_is_none(models):
    with pytest.raises(UserError, match="the endpoint http://there"):
        infer(models=models)


@pytest.mark.parametrize("effective", [b"[1,2]", b"null", b'{"effective": [1]}', b'{"effective": 5}', b"<html>"])
def test_options_that_are_not_told(effective):
    assert infer(effective=effective).effective["speculative"] is None


@pytest.mark.parametrize(
    "stream",
    [
        b"", b"<html>", b"data: [1,2]\n\n", b"data: null\n\n", b"data: {broken\n\n", b'data: {"error": "dead"}\n\n',
        b'data: {"error": {"message": "dead"}}\n\n', b'data: {"choices": [5]}\n\n', b'data: {"choices": 5}\n\n',
        b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', b'data: {"choices": [{"delta": [1]}]}\n\n',
        b'data: {"usage": [1]}\n\ndata: [DONE]\n\n', b'data: {"usage": {"completion_tokens": "x"}}\n\ndata: [DONE]\n\n',
        b'data: {"metrics": {"speculative_decoding": {"num_draft_tokens": 3}}, "usage": {"prompt_tokens": 1}}\n\n'
        b"data: [DONE]\n\n",
    ],
)  # fmt: skip
def test_a_stream_that_is_none(stream):
    with pytest.raises(InferenceFailed, match="endpoint"):
        infer(stream=stream)
