"""The start-up guard: a KV cache that cannot hold one request is told before anything starts."""

import json

import pytest

import jobs.plan
from pipeline.config import UserError, load_config
from serve.kv_budget import kv_budget_line, pool_of, read_model_config

MLA = {"model_type": "deepseek_v3", "num_hidden_layers": 2, "kv_lora_rank": 24, "qk_rope_head_dim": 8}
PLAIN = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}


def cfg(*overrides):
    return load_config("infra/presets/tiny.yaml", list(overrides))


def test_the_shipped_preset():
    # 4 layers x 4 heads x 64 numbers x 4 bytes x 32 tokens = 131,072; 256 MiB hold 2,048 of them, 16 to a request
    assert kv_budget_line(cfg()) == (
        "KV cache: 2,048 blocks of 32 tokens (float32), 128.0 requests of 512 tokens at once"
    )
    assert "(fp8), 512.0 requests" in kv_budget_line(cfg("kv.dtype=fp8"))
    assert kv_budget_line(cfg("speculation={method: eagle3, k_max: 2, model: x}")).endswith("layers are not counted")


def test_one_block_too_few():
    assert "1.1 requests" in kv_budget_line(cfg(f"engine.kv_cache_bytes={17 * 131072}"))
    with pytest.raises(UserError) as caught:
        kv_budget_line(cfg(f"engine.kv_cache_bytes={17 * 131072 - 1}"))
    assert str(caught.value) == (
        "engine.kv_cache_bytes is 2,228,223; one request of engine.max_model_len (512) tokens needs 2,228,224 "
        "(4,096 a token, in blocks of 32): lower engine.max_model_len to 480 or less, or raise engine.kv_cache_bytes, "
        "or set kv.dtype=fp8"
    )
    assert "fp8" in kv_budget_line(cfg(f"engine.kv_cache_bytes={17 * 131072 - 1}", "kv.dtype=fp8"))


def test_what_cannot_be_counted_is_said_and_not_refused(tmp_path):
    assert "not checked (cannot read" in kv_budget_line(cfg(f"model.path={tmp_path}"))
    (tmp_path / "config.json").write_text('{"model_type": "mamba2", "num_hidden_layers": 2}')
    assert "not checked (the KV cache of model type 'mamba2'" in kv_budget_line(cfg(f"model.path={tmp_path}"))
    assert "needs 2,162,688 bytes" in kv_budget_line(cfg("engine.device=cuda", "engine.kv_cache_bytes=null"))


def test_blocks_are_those_the_backend_takes():
    def block(model, device, *overrides):
        return pool_of(cfg(*overrides), model, device).block_size

    assert [block(PLAIN, "cpu"), block(PLAIN, "cuda"), block(PLAIN, "cpu", "engine.block_size=64")] == [32, 16, 64]
    assert [block(MLA, "cpu"), block(MLA, "cuda"), block(MLA, "cuda", "engine.block_size=128")] == [16, 64, 128]
    with pytest.raises(UserError, match="type int8_per_token_head is not counted"):
        pool_of(cfg(), PLAIN, "cpu", "int8_per_token_head")


@pytest.mark.parametrize("text", ["[1]", "{", '"x"'])
def test_an_unusable_config_json(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match="config.json"):
        read_model_config(tmp_path / "config.json")


def test_plan_for_a_million_tokens(tmp_path, capsys):
    file = tmp_path / "config.json"
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}
    sizes = {"num_hidden_layers": 36, "hidden_size": 2560, "intermediate_size": 9728, "vocab_size": 151936}
    file.write_text(json.dumps({"model_type": "qwen3", **heads, **sizes}))
    argv = ["memory", "--config", "infra/presets/qwen3-4b.yaml", "--hf-config", str(file), "--context", "1048576"]
    assert jobs.plan.command([*argv, "--gpu-memory", "141", "--kv-dtype", "fp8"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    # 0.85 x 141 GiB - 8,044,936,192 bytes = 120,643,820,748; a block of 16 tokens takes 1,179,648 in fp8
    assert ["*", "fp8", "73,728", "72.00", "GiB", "102,270", "1.56", "1,636,304"] in rows
    assert ["bfloat16", "147,456", "144.00", "GiB", "51,135", "0.78", "(does", "not", "fit)", "818,144"] in rows
    assert jobs.plan.command([*argv, "--gpu-memory", "141"]) == 1
    assert jobs.plan.command([*argv, "--gpu-memory", "4"]) == 1


def test_plan_of_the_shipped_model(capsys):
    assert jobs.plan.command(["memory", "--config", "infra/presets/tiny.yaml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "1,088,256 parameters, 4.15 MiB as float32" in out and "65,504" in out


@pytest.mark.parametrize(
    "argv",
    [["memory", "--context", "0"], ["speed"], ["memory", "--hf-config", "none.json"], ["memory", "--model", "no"]],
)
def test_plan_mistakes(argv, capsys):
    assert jobs.plan.command(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 10}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_attention_heads": 0}, "zero"),
        ({"num_key_value_heads": "two"}, "'str'"),
        ({}, "'intermediate_size' is missing"),
        ({"intermediate_size": 8, "layer_types": 7}, "not iterable"),
    ],
)
def test_plan_of_what_describes_no_model(wrong, told, capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | wrong))
    assert jobs.plan.command(["memory", "--hf-config", str(tmp_path / "config.json")]) == 2
    err = capsys.readouterr().err
    assert "does not describe a model" in err and told in err


def test_plan_with_more_memory_than_there_is(capsys):
    assert jobs.plan.command(["memory", "--model", "infra/models/tiny", "--gpu-memory", "1e300"]) == 2
    assert "at most 1,048,576" in capsys.readouterr().err
