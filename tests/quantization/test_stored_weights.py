"""What a config.json tells of rounded weights, and the hardware they run on. Values are those of published formats."""

import pytest

from pipeline.quantization.hardware import sizes, unfit
from pipeline.quantization.stored import Stored, stored_quantisation

INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}},
    },
}
W8A8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
        },
    },
}
FP8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        },
    },
}
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MODEL = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 32}


def stored(config):
    return stored_quantisation({"quantization_config": config})


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (INT4, "INT4 (W4A16, groups of 128, compressed-tensors)"),
        (W8A8, "INT8 (W8A8, compressed-tensors)"),
        (FP8, "FP8 (W8A8, compressed-tensors)"),
        (FP8_BLOCKS, "FP8 (W8A8, blocks, fp8)"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "INT4 (W4A16, groups of 128, gptq)"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "INT4 (W4A16, gptq)"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "INT4 (W4A16, groups of 64, awq)"),
        ({"quant_method": "torchao"}, "torchao"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "compressed-tensors", "config_groups": "odd"}, "compressed-tensors"),
        ({"x": 1}, "unknown"),
    ],
)
def test_recognised(config, name):
    assert stored(config).name == name
    assert stored_quantisation({"text_config": {"quantization_config": config}}).name == name


@pytest.mark.parametrize("model", [{}, {"quantization_config": None}, {"quantization_config": {}}, {"text_config": 3}])
def test_weights_that_are_whole(model):
    assert stored_quantisation(model) is None


@pytest.mark.parametrize(
    ("config", "dtype", "amx", "text"),
    [
        (INT4, "float32", False, "need engine.dtype bfloat16 or float16, not float32"),
        (W8A8, "float32", True, "on a processor with AMX tiles need engine.dtype bfloat16"),
        (W8A8, "float16", True, "need engine.dtype bfloat16, not float16"),
        (FP8, "bfloat16", False, "need a processor with AMX tiles"),
        (FP8, "bfloat16", True, "only FP8 in blocks"),
        (FP8_BLOCKS, "float32", True, "need engine.dtype bfloat16, not float32"),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": 128},
            "bfloat16",
            False,
            "rounded to 4 bits, or weights and",
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 33}, "bfloat16", False, "a group must be even"),
    ],
)
def test_not_on_this_cpu(config, dtype, amx, text):
    assert text in unfit(stored(config), MODEL, "cpu", dtype, amx=amx)


@pytest.mark.parametrize(
    ("config", "dtype", "amx"),
    [(INT4, "bfloat16", False), (INT4, "float16", True), (W8A8, "float32", False), (W8A8, "bfloat16", True)]
    + [(FP8_BLOCKS, "bfloat16", True), ({"quant_method": "torchao"}, "float32", False)],
)
def test_on_this_cpu(config, dtype, amx):
    assert unfit(stored(config), MODEL, "cpu", dtype, amx=amx) is None


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"hidden_size": 100}, "hidden_size (100) must be a multiple of 32"),
        ({"intermediate_size": 500}, "intermediate_size (500)"),
        ({"head_dim": 20}, "width of the queries (80)"),
        ({"head_dim": 24, "num_key_value_heads": 1}, "width of queries, keys and values (144)"),
    ],
)
def test_sizes_that_the_int4_kernel_does_not_take(changed, text):
    assert text in unfit(stored(INT4), MODEL | changed, "cpu", "bfloat16")
    assert unfit(stored(INT4), MODEL | changed, "cuda", "bfloat16", (9, 0)) is None


def test_sizes_of_a_nested_config():
    assert sizes({"text_config": MODEL}) == sizes(MODEL)
    assert sizes({"hidden_size": 64}) == {"hidden_size": 64}


def test_on_a_gpu_the_capability_decides():
    four = stored(INT4)
    assert "compute capability 7.0 does not" in unfit(four, MODEL, "cuda", "float16", (7, 0))
    assert unfit(four, MODEL, "cuda", "float32", (7, 5)) is None and unfit(four, MODEL, "cuda", "float16") is None
    assert Stored("fp8", "float", 8, None, 8).name == "FP8 (W8A8, fp8)"
