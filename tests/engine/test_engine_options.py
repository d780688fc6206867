"""Options: what is resolved, what is refused, what the engine's process needs."""

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Engine
from pipeline.engine import EffectiveOptions, EngineOptions, engine_env


def options(**keys):
    build = keys.pop("build", "cpu")
    return EngineOptions.from_config(Engine(**keys), build)


def test_auto_takes_the_device_the_build_serves():
    assert options().device == "cpu"
    assert options(build="cuda").device == "cuda"


@pytest.mark.parametrize(("wanted", "build"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_device_the_build_does_not_serve_is_refused(wanted, build):
    with pytest.raises(UserError, match=f"engine.device is '{wanted}' but the installed vLLM is the {build} build"):
        options(device=wanted, build=build)


def test_cpu_defaults():
    got = options(max_model_len=512)
    assert (got.block_size, got.kv_cache_bytes, got.enforce_eager) == (32, 256 << 20, True)
    assert got.chunked_prefill is False
    assert got.max_num_batched_tokens == 4096


def test_cpu_steps_hold_a_whole_sequence_since_prefill_is_never_chunked():
    assert options(max_model_len=9000).max_num_batched_tokens == 9000


@pytest.mark.parametrize("size", [8, 16, 48])
def test_cpu_block_size_must_be_a_multiple_of_32(size):
    with pytest.raises(UserError, match="multiple of 32"):
        options(block_size=size)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"kv_cache_bytes": None}, "engine.kv_cache_bytes"),
        ({"tensor_parallel": 2}, "engine.tensor_parallel"),
        ({"gpu_memory_utilization": 0.9}, "engine.gpu_memory_utilization has no effect on CPU"),
    ],
)
def test_what_cpu_would_ignore_is_refused(keys, text):
    with pytest.raises(UserError, match=text):
        options(**keys)


def test_gpu_leaves_choices_to_vllm_and_ignores_the_cpu_cache_default():
    got = options(build="cuda", gpu_memory_utilization=0.7)
    args = got.engine_args("m")
    assert got.kv_cache_bytes is None
    assert {"block_size", "kv_cache_memory_bytes", "enable_chunked_prefill"} & args.keys() == set()
    assert (args["gpu_memory_utilization"], args["enforce_eager"]) == (0.7, False)


def test_gpu_honours_a_cache_size_the_user_wrote():
    assert options(build="cuda", kv_cache_bytes=1 << 30).kv_cache_bytes == 1 << 30


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_two_sizes_of_the_cache_are_refused(build):
    with pytest.raises(UserError, match="engine.gpu_memory_utilization"):
        options(build=build, kv_cache_bytes=1 << 30, gpu_memory_utilization=0.9)
    assert options(build="cuda", kv_cache_bytes=None, gpu_memory_utilization=0.9).kv_cache_bytes is None


def test_engine_args_ask_for_what_reinforcement_learning_needs():
    args = options().engine_args("m")
    assert args["logprobs_mode"] == "processed_logprobs"
    assert args["async_scheduling"] is False
    assert args["weight_transfer_config"] == {"backend": "folder"}
    assert "gpu_memory_utilization" not in args


def test_environment_on_cpu_and_gpu(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    cpu, gpu = engine_env(options()), engine_env(options(build="cuda"))
    assert cpu["OMP_NUM_THREADS"] == cpu["TORCHDYNAMO_DISABLE"] == cpu["HF_HUB_OFFLINE"] == "1"
    assert cpu["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert cpu["PYTHONPATH"].endswith(":/elsewhere")
    assert not {"OMP_NUM_THREADS", "TORCHDYNAMO_DISABLE"} & gpu.keys()


def test_environment_does_not_grow_when_applied_twice(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", engine_env(options())["PYTHONPATH"])
    paths = engine_env(options())["PYTHONPATH"].split(":")
    assert len(paths) == len(set(paths))


def test_effective_options_name_what_had_no_effect():
    requested = {"block_size": 32, "dtype": "float32", "free": None}
    got = EffectiveOptions(requested, {"block_size": 128, "dtype": "float32"}, 0)
    assert got.differences() == {"block_size": (32, 128)}
    with pytest.raises(UserError, match="engine.block_size was set to 32 but the engine runs with 128"):
        got.check()
