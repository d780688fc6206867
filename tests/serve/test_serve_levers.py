"""The endpoint's levers: the engine arguments they become, and what is refused before anything starts."""

import json

import pytest

from pipeline.config import RunConfig, UserError, load_config
from pipeline.config.schema_serving import KvCache, Quant, Speculation
from pipeline.engine.vllm_source import class_fields, literal, reasoning_parsers, tool_parsers
from serve.levers import check_levers, engine_levers, lever_sections, refusals, sampling_refusals

TINY = "infra/presets/tiny.yaml"
ALL = [
    "engine.device=cuda",
    "kv={dtype: fp8, prefix_cache: false, prefix_hash: sha256_cbor}",
    "batching={max_num_batched_tokens: 8192, max_num_active_seqs: 64, long_prefill_token_threshold: 256}",
    "batching.long_prefill_token_threshold_adaptive=true",
    "admission={max_requests: 256, max_prefill_tokens: 65536, policy: priority}",
    "speculation={method: ngram, k_max: 4, prompt_lookup_min: 2, prompt_lookup_max: 4, table: [[1, 4, 4], [5, 64, 0]]}",
    "quant.weights=fp8_per_tensor",
    "reasoning={parser: null, start: <think>, end: </think>}",
]


def cfg(*overrides):
    return load_config(TINY, list(overrides))


def absent(package):
    return False


def only(sentences):
    assert len(sentences) == 1, sentences
    return sentences[0]


def test_untouched_levers_leave_the_endpoint_as_it_was():
    assert engine_levers(RunConfig(), "cpu") == {
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": True,
        "prefix_caching_hash_algo": "sha256",
        "scheduling_policy": "fcfs",
        "reasoning_parser": "deepseek_r1",
    }
    assert refusals(cfg(), "cpu") == [] and refusals(RunConfig(), "cuda", (9, 0)) == []


def test_each_lever_becomes_vllms_own_argument():
    assert engine_levers(cfg(*ALL), "cpu") == {
        "kv_cache_dtype": "fp8",
        "enable_prefix_caching": False,
        "prefix_caching_hash_algo": "sha256_cbor",
        "max_num_batched_tokens": 8192,
        "max_num_active_seqs": 64,
        "long_prefill_token_threshold": 256,
        "long_prefill_token_threshold_adaptive": True,
        "max_num_queued_reqs": 256,
        "max_num_queued_tokens": 65536,
        "scheduling_policy": "priority",
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 4,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
            "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 64, 0]],
        },
        "disable_log_stats": False,
        "per_request_spec_decode_metrics": "summary",
        "quantization": "fp8_per_tensor",
        "reasoning_parser": "",
        "reasoning_config": {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"},
    }
    assert refusals(cfg(*ALL), "cuda", (9, 0)) == []


def test_arguments_are_plain_and_known_to_the_installed_vllm():
    found = engine_levers(cfg(*ALL), "cpu")
    assert json.loads(json.dumps(found)) == found
    assert set(found) <= class_fields("EngineArgs")
    assert set(found["speculative_config"]) <= class_fields("SpeculativeConfig")
    assert set(found["reasoning_config"]) <= class_fields("ReasoningConfig")


def test_choices_are_vllms():
    choices = {name: set(kind.model_fields[name].annotation.__args__) for kind, name in [(KvCache, "dtype")]}
    assert choices["dtype"] <= literal("config/cache.py", "CacheDType")
    hashes = set(KvCache.model_fields["prefix_hash"].annotation.__args__)
    assert hashes == literal("config/cache.py", "PrefixCachingHashAlgo")
    weights = set(Quant.model_fields["weights"].annotation.__args__) - {"none"}
    assert weights <= literal("model_executor/layers/quantization/__init__.py", "QuantizationMethods")
    methods = set(Speculation.model_fields["method"].annotation.__args__) - {"none", "ssd", "mtp", "eagle", "eagle3"}
    assert methods <= literal("config/speculative.py", "SpeculativeMethod")
    assert {"eagle", "eagle3"} <= literal("config/speculative.py", "EagleModelTypes")
    assert "mtp" in literal("config/speculative.py", "MTPModelTypes")
    assert {"deepseek_r1", "qwen3"} <= reasoning_parsers()


def test_levers_survive_a_serve_config():
    asked = cfg(*ALL)
    again = RunConfig(**json.loads(json.dumps(lever_sections(asked))))
    assert engine_levers(again, "cpu") == engine_levers(asked, "cpu")


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("kv.dtype=bfloat16", "generates garbage"),
        ("kv.dtype=float16", "generates garbage"),
        ("kv.dtype=int8_per_token_head", "generates garbage"),
        ("quant.weights=int8_per_channel_weight_only", "accepted on CPU and not applied"),
        ("quant.weights=fp8_per_tensor", "fails in vLLM's CPU kernels"),
        ("batching.max_num_batched_tokens=511", "below engine.max_model_len (512); on CPU"),
        ("batching.long_prefill_token_threshold=64", "on CPU it must be 0"),
        ("batching.long_prefill_token_threshold_adaptive=true", "does nothing while"),
        ("batching.max_num_active_seqs=129", "above engine.max_num_seqs (128)"),
        ("kv.prefix_hash=xxhash", "xxhash is not installed; use sha256"),
        ("speculation={method: suffix}", "arctic-inference is not installed"),
        ("speculation={method: draft_model, k_max: 3, model: infra/models/tiny}", "the served model itself, so"),
        ("speculation={method: ngram, k_max: 3, table: [[1, 8, 0]]}", "drafts nothing for a single request"),
        ("reasoning.parser=deepseek_r2", "did you mean 'deepseek_"),
    ],
)
def test_refused_on_cpu(override, text):
    assert text in only(refusals(cfg(override), "cpu", installed=absent))
    with pytest.raises(UserError):
        check_levers(cfg("quant.weights=fp8_per_block"), "cpu")


@pytest.mark.parametrize(
    "override",
    [
        "kv.dtype=fp8",
        "kv.dtype=fp8_e5m2",
        "batching.max_num_batched_tokens=512",
        "batching.max_num_active_seqs=128",
        "speculation={method: suffix}",
        "speculation={method: draft_model, k_max: 3, model: infra/models/judge}",
        "reasoning={parser: null}",
    ],
)
def test_accepted_on_cpu(override):
    assert refusals(cfg(override), "cpu", installed=lambda package: True) == []


def test_both_budgets_too_small_are_both_named():
    found = refusals(cfg("batching.max_num_batched_tokens=100"), "cpu")
    assert ["max_num_seqs (128)" in found[0], "max_model_len (512)" in found[1]] == [True, True]


@pytest.mark.parametrize(
    ("override", "capability", "text"),
    [
        ("kv.dtype=fp8", (8, 0), "compute capability 8.0 has no FP8"),
        ("quant.weights=fp8_per_channel", (7, 5), "compute capability 7.5 has no FP8"),
        ("kv.dtype=bfloat16", (9, 0), "engine.dtype is float32; use auto"),
        ("engine.block_size=8", (9, 0), "multiple of 16"),
        ("engine.block_size=24", (9, 0), "multiple of 16"),
        ("batching.long_prefill_token_threshold=513", (9, 0), "would limit nothing"),
    ],
)
def test_refused_on_a_gpu(override, capability, text):
    assert text in only(refusals(cfg(override), "cuda", capability))


@pytest.mark.parametrize(
    "overrides",
    [
        ["kv.dtype=fp8"],
        ["quant.weights=fp8_per_tensor"],
        ["quant.weights=int8_per_channel_weight_only"],
        ["engine.block_size=48"],
        ["kv.dtype=bfloat16", "engine.dtype=bfloat16"],
        ["batching.max_num_batched_tokens=128"],
        ["batching.long_prefill_token_threshold=512"],
    ],
)
def test_accepted_on_a_gpu_with_fp8(overrides):
    assert refusals(cfg(*overrides), "cuda", (8, 9)) == []


def test_what_only_the_model_can_tell():
    mla = {"kv_lora_rank": 512, "num_nextn_predict_layers": 1}
    assert "sets 16 on CPU" in only(refusals(cfg("engine.block_size=32"), "cpu", model=mla))
    assert refusals(cfg(), "cpu", model=mla) == []
    quantised = {"quantization_config": {"quant_method": "fp8"}}
    assert "quantised already" in only(refusals(cfg("quant.weights=fp8_per_block"), "cuda", (9, 0), quantised))
    mtp = cfg("speculation={method: mtp, k_max: 3}")
    assert "no prediction heads" in only(refusals(mtp, "cuda", model={"num_hidden_layers": 2}))
    assert refusals(mtp, "cuda", model=mla) == [] and refusals(mtp, "cuda") == []
    assert "multiple of the model's 2" in only(refusals(mtp, "cuda", model={"num_nextn_predict_layers": 2}))


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("speculation={method: ngram}", "needs k_max"),
        ("speculation={method: eagle3, k_max: 3}", "needs model"),
        ("speculation={method: draft_model, k_max: 3}", "needs model"),
        ("speculation={k_max: 4}", "k_max does nothing with method 'none'"),
        ("speculation={method: ngram, k_max: 4, model: x}", "model does nothing with method 'ngram'"),
        ("speculation={method: mtp, k_max: 1, prompt_lookup_max: 4}", "prompt_lookup_max does nothing"),
        ("speculation={method: suffix, k_max: 4, table: [[1, 2, 3]]}", "sets its own length for each request"),
        ("speculation={method: ngram, k_max: 4, prompt_lookup_min: 5, prompt_lookup_max: 4}", "is above"),
        ("speculation={method: ngram, k_max: 4, table: [[2, 4, 1]]}", "must start at 1"),
        ("speculation={method: ngram, k_max: 4, table: [[1, 4, 1], [6, 8, 0]]}", "must start at 5"),
        ("speculation={method: ngram, k_max: 4, table: [[1, 4, 5]]}", "more than k_max (4)"),
        ("reasoning={parser: null, start: <think>}", "belong together"),
        ("reasoning={start: <a>, end: <b>}", "brings its own marks"),
        ("admission.max_requests=0", "above 0"),
    ],
)
def test_contradictions_are_told_as_the_config_is_read(override, text):
    with pytest.raises(UserError) as caught:
        cfg(override)
    assert text in str(caught.value)


def test_attributes_that_sampling_parameters_would_swallow():
    assert sampling_refusals(["temperature", "thinking_token_budget", "extra_args"]) == []
    swallowed, misspelt = sampling_refusals(["use_speculative", "temprature"])
    assert "would be ignored; vLLM lets it be set" in swallowed and "speculation.method" in swallowed
    assert misspelt.endswith("would be ignored; did you mean 'temperature'?")


def test_tools_are_parsed_where_the_model_has_them():
    assert {"hermes", "llama3_json", "mistral", "qwen3_coder"} <= tool_parsers()
    found = engine_levers(cfg("serve.tool_parser=hermes"), "cpu")
    assert (found["enable_auto_tool_choice"], found["tool_call_parser"]) == (True, "hermes")
    assert refusals(cfg("serve.tool_parser=hermes"), "cpu") == []
    text = only(refusals(cfg("serve.tool_parser=hermess"), "cpu"))
    assert "serve.tool_parser" in text and "'hermes'" in text


INT4 = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}},
        },
    },
    "hidden_size": 128,
}


def test_a_rounded_checkpoint_is_recognised_and_its_weights_are_rounded_once():
    twice = only(refusals(cfg("quant.weights=fp8_per_tensor"), "cuda", (9, 0), INT4))
    assert "quantised already, to INT4 (W4A16, groups of 32, compressed-tensors)" in twice and "rounded once" in twice
    assert refusals(cfg("kv.dtype=fp8"), "cuda", (9, 0), INT4) == []
    assert refusals(cfg("kv.dtype=fp8", "engine.dtype=bfloat16"), "cpu", model=INT4) == []
    assert "need engine.dtype bfloat16 or float16, not float32" in only(refusals(cfg(), "cpu", model=INT4))
    odd = INT4 | {"intermediate_size": 100}
    assert "intermediate_size (100) must be a multiple" in only(
        refusals(cfg("engine.dtype=bfloat16"), "cpu", model=odd)
    )


def test_fp8_checkpoints_need_amx_on_a_cpu():
    block = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    half = cfg("engine.dtype=bfloat16")
    assert "AMX" in only(refusals(half, "cpu", model=block, amx=False))
    assert refusals(half, "cpu", model=block, amx=True) == []
