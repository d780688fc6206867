"""Why three things are refused: vLLM takes them, and does not do what they say. Where one of these fails, vLLM has
mended it, and the refusal (`serve.lever_checks`) may go."""

import pytest

from serve.lever_checks import refusals, sampling_refusals
from tests.engine.stepped import USUAL, Engines

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

KINDS = {
    "plain": ([], {}),
    "cache": ([], {"kv_cache_dtype": "bfloat16"}),
    "half": (["engine.dtype=bfloat16"], {}),
    "int8": (["engine.dtype=bfloat16"], {"quantization": "int8_per_channel_weight_only"}),
}


@pytest.fixture(scope="module")
def engines():
    made = Engines(KINDS)
    yield made
    made.close()


def replies(engine):
    names = [engine.add([10 + (i * 7 + n) % 80 for i in range(40)], 24) for n in range(4)]
    return [(record.token_ids, record.logprobs) for record in engine.finish(*names)]


def refused(override):
    from pipeline.config import load_config

    return refusals(load_config("infra/presets/tiny.yaml", [*USUAL, override]), "cpu")


def test_a_bfloat16_cache_under_a_float32_model_still_garbles(engines):
    right, wrong = engines.once("plain", replies), engines.once("cache", replies)
    same = sum(
        a == b for (one, _), (other, _) in zip(right, wrong, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert same < 0.5 * 4 * 24
    assert "generates garbage" in refused("kv.dtype=bfloat16")[0]


def test_weight_only_int8_is_still_not_applied(engines):
    assert engines.once("int8", replies) == engines.once("half", replies)
    assert "not applied" in refused("quant.weights=int8_per_channel_weight_only")[0]


def test_sampling_parameters_still_take_any_attribute():
    from vllm import SamplingParams

    params = SamplingParams()
    params.use_speculative = True
    with pytest.raises(TypeError):
        SamplingParams(use_speculative=True)
    assert "would be ignored" in sampling_refusals(["use_speculative"])[0]
