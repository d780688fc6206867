"""What an engine runs with, read by the names it was asked for."""

import json
from collections.abc import Mapping
from types import SimpleNamespace

from pipeline.config import load_config
from pipeline.engine.options import EngineOptions
from pipeline.engine.vllm_source import config_fields
from serve.effective import compare, differences
from serve.engine_config import PLACES, effective_engine, kv_tokens
from serve.levers import engine_kwargs

ALL = [
    "kv={dtype: fp8, prefix_hash: sha256_cbor}",
    "batching={max_num_batched_tokens: 8192, max_num_active_seqs: 64, long_prefill_token_threshold: 256}",
    "batching.long_prefill_token_threshold_adaptive=true",
    "admission={max_requests: 256, max_prefill_tokens: 65536, policy: priority}",
    "speculation={method: ngram, k_max: 4, prompt_lookup_min: 2, prompt_lookup_max: 4, table: [[1, 4, 4], [5, 64, 0]]}",
    "quant.weights=fp8_per_tensor",
    "reasoning={parser: null, start: <think>, end: </think>}",
    "serve.tool_parser=hermes",
]


def asked(*overrides, device="cpu"):
    cfg = load_config(None, [f"engine.device={device}", *overrides])
    return engine_kwargs(EngineOptions.from_config(cfg.engine, build=device), cfg)


def names(tree, above=""):
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from names(value, f"{above}{name}.")
        else:
            yield above + name


def test_all_that_can_be_asked_for_is_read_back():
    told = {*PLACES, "enable_auto_tool_choice", "tool_call_parser", "disable_log_stats"}
    for options in (asked(), asked(*ALL, device="cuda"), asked("speculation={method: mtp, k_max: 2}", device="cuda")):
        assert set(names(options)) <= told


def test_places_are_those_of_the_installed_vllm():
    parts = {part for place in PLACES.values() for part in place.split(".")}
    assert parts <= config_fields()


def stand_in(options, **changed):
    """A VllmConfig that took what `options` asked for, but for `changed` places."""
    flat = dict(zip(names(options), leaves(options), strict=True))
    config = SimpleNamespace()
    for name, place in PLACES.items():
        section, field = place.split(".")
        if not hasattr(config, section):
            setattr(config, section, SimpleNamespace())
        setattr(getattr(config, section), field, changed.get(name, flat.get(name)))
    return config


def leaves(tree):
    for value in tree.values():
        if isinstance(value, Mapping):
            yield from leaves(value)
        else:
            yield value


def test_what_did_not_take_effect_shows():
    options = asked(*ALL, device="cuda")
    frontend = SimpleNamespace(enable_auto_tool_choice=True, tool_call_parser="hermes")
    found = effective_engine(stand_in(options), frontend, log_stats=True)
    assert differences(compare(options, found)) == [] and json.loads(json.dumps(found)) == found
    found = effective_engine(stand_in(options, max_num_seqs=7), SimpleNamespace(tool_call_parser="x"), log_stats=False)
    wrong = [row.name for row in differences(compare(options, found))]
    assert wrong == ["disable_log_stats", "enable_auto_tool_choice", "max_num_seqs", "tool_call_parser"]


def test_the_draft_length_policy_is_told_whole():
    options = asked("speculation={method: ngram, k_max: 2, policy: goodput, policy_options: {dwell: 8}, log: d.jsonl}")
    config = SimpleNamespace(additional_config=options["additional_config"])
    found = effective_engine(config, None, log_stats=True)["additional_config"]
    assert found["adaptive_speculation"]["policy"] == "goodput" and json.loads(json.dumps(found)) == found
    rows = compare({"additional_config": options["additional_config"]}, {"additional_config": found})
    assert differences(rows) == [] and any(row.name.endswith("options.dwell") for row in rows)
    assert PLACES["scheduler_cls"] == "scheduler_config.scheduler_cls"


def test_vllms_own_types_become_plain():
    import torch

    options = asked()
    found = effective_engine(
        stand_in(options, dtype=torch.float32, executor=object), SimpleNamespace(), log_stats=False
    )
    assert found["dtype"] == "float32" and json.loads(json.dumps(found)) == found
    without = stand_in(options)
    without.speculative_config = None
    assert "speculative_config.method" not in effective_engine(without, None, log_stats=False)


def test_a_rounded_checkpoint_is_told_by_its_own_name():
    config = stand_in(asked())
    config.model_config.hf_config = SimpleNamespace(quantization_config={"quant_method": "gptq", "bits": 4})
    assert effective_engine(config, SimpleNamespace(), False)["quantized_checkpoint"] == "INT4 (W4A16, gptq)"
    config.model_config.hf_config = SimpleNamespace()
    assert "quantized_checkpoint" not in effective_engine(config, SimpleNamespace(), False)


def test_tokens_of_the_cache_are_its_blocks_where_they_are_told():
    assert kv_tokens({"kv_cache_blocks": 10, "block_size": 32}) == 320 and kv_tokens({"block_size": 32}) is None
