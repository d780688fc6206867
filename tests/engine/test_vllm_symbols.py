"""Every vLLM name this project leans on, one test each: when vLLM moves one, its name is in the failure."""

import importlib
import inspect

import pytest

pytestmark = pytest.mark.slow  # importing vLLM takes seconds

CALLABLES = [
    # (module, qualified name, parameters we pass by name or position)
    ("vllm.v1.engine.llm_engine", "LLMEngine.from_engine_args", ["engine_args"]),
    ("vllm.v1.engine.llm_engine", "LLMEngine.add_request", ["request_id", "prompt", "params"]),
    ("vllm.v1.engine.llm_engine", "LLMEngine.abort_request", ["request_ids"]),
    ("vllm.v1.engine.llm_engine", "LLMEngine.step", []),
    ("vllm.v1.engine.llm_engine", "LLMEngine.has_unfinished_requests", []),
    ("vllm.v1.engine.llm_engine", "LLMEngine.collective_rpc", ["method", "args", "kwargs"]),
    ("vllm.v1.engine.llm_engine", "LLMEngine.reset_prefix_cache", ["reset_running_requests"]),
    ("vllm.v1.engine.llm_engine", "LLMEngine.set_weight_version", ["weight_version"]),
    ("vllm.v1.engine.core_client", "InprocClient.shutdown", []),
    ("vllm.renderers.base", "BaseRenderer.shutdown", []),
    ("vllm.v1.worker.gpu_worker", "Worker.init_weight_transfer_engine", ["init_info"]),
    ("vllm.v1.worker.gpu_worker", "Worker.start_weight_update", []),
    ("vllm.v1.worker.gpu_worker", "Worker.update_weights", ["update_info"]),
    ("vllm.v1.worker.gpu_worker", "Worker.finish_weight_update", []),
    ("vllm.distributed.weight_transfer.base", "WeightTransferEngine.init_transfer_engine", ["init_info"]),
    ("vllm.distributed.weight_transfer.base", "WeightTransferEngine.start_weight_update", []),
    ("vllm.distributed.weight_transfer.base", "WeightTransferEngine.receive_weights", ["update_info"]),
    ("vllm.distributed.weight_transfer.base", "WeightTransferEngine.finish_weight_update", []),
    ("vllm.distributed.weight_transfer.base", "WeightTransferEngine.shutdown", []),
    (
        "vllm.distributed.weight_transfer.factory",
        "WeightTransferEngineFactory.register_engine",
        ["name", "module_path_or_cls"],
    ),
    ("vllm.model_executor.layers.attention", "is_deferred_attention_layer", ["layer"]),
    ("vllm.model_executor.model_loader.reload", "initialize_layerwise_reload", ["model"]),
    ("vllm.model_executor.model_loader.reload.layerwise", "finalize_layerwise_processing", ["model", "model_config"]),
    ("vllm.model_executor.layers.vocab_parallel_embedding", "ParallelLMHead.tie_weights", ["embed_tokens"]),
    (
        "vllm.model_executor.layers.vocab_parallel_embedding",
        "UnquantizedEmbeddingMethod.process_weights_after_loading",
        ["layer"],
    ),
]

FIELDS = [
    ("vllm.outputs", "RequestOutput", ["request_id", "prompt_logprobs", "outputs", "finished"]),
    (
        "vllm.outputs",
        "CompletionOutput",
        ["index", "token_ids", "logprobs", "finish_reason", "stop_reason", "weight_versions"],
    ),
    ("vllm.outputs", "WeightVersionSpan", ["version", "start", "end"]),
    ("vllm.logprobs", "FlatLogprobs", ["logprobs", "token_ids", "start_indices"]),
    ("vllm.logprobs", "Logprob", ["logprob"]),
    (
        "vllm.sampling_params",
        "SamplingParams",
        [
            "n",
            "seed",
            "temperature",
            "top_p",
            "max_tokens",
            "stop_token_ids",
            "logprobs",
            "prompt_logprobs",
            "flat_logprobs",
            "detokenize",
            "output_kind",
        ],
    ),
    (
        "vllm.config",
        "CacheConfig",
        ["block_size", "kv_cache_memory_bytes", "cache_dtype", "enable_prefix_caching", "num_gpu_blocks"],
    ),
    (
        "vllm.config",
        "SchedulerConfig",
        ["max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "async_scheduling"],
    ),
    ("vllm.config", "ModelConfig", ["dtype", "max_model_len", "enforce_eager", "logprobs_mode"]),
    ("vllm.config", "ParallelConfig", ["tensor_parallel_size", "distributed_executor_backend", "worker_extension_cls"]),
    ("vllm.config.weight_transfer", "WeightTransferConfig", ["backend"]),
]


def resolve(module, name):
    """The object, or a failure that says which vLLM name is gone."""
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"vLLM no longer has {module}.{name}: {error}")
    return found


@pytest.mark.parametrize(("module", "name", "parameters"), CALLABLES, ids=[c[1] for c in CALLABLES])
def test_callable_takes_what_we_pass(module, name, parameters):
    known = inspect.signature(resolve(module, name)).parameters
    missing = [p for p in parameters if p not in known]
    assert not missing, f"{module}.{name} no longer takes {missing}; it takes {list(known)}"


@pytest.mark.parametrize(("module", "name", "fields"), FIELDS, ids=[f[1] for f in FIELDS])
def test_type_has_the_fields_we_read(module, name, fields):
    kind = resolve(module, name)
    known = {n for base in kind.__mro__ for n in getattr(base, "__annotations__", {})} | set(dir(kind))
    known |= set(inspect.signature(kind).parameters)
    missing = [f for f in fields if f not in known]
    assert not missing, f"{module}.{name} no longer has {missing}"


def test_engine_args_take_every_option_we_set():
    from pipeline.config.schema import Engine
    from pipeline.engine import EngineOptions

    kind = resolve("vllm.engine.arg_utils", "EngineArgs")
    ours = set(EngineOptions.from_config(Engine(), "cpu").engine_args("m")) | set(
        EngineOptions.from_config(Engine(), "cuda").engine_args("m")
    )
    missing = ours - set(inspect.signature(kind).parameters)
    assert not missing, f"vllm EngineArgs no longer takes {sorted(missing)}"


def test_output_kinds_and_finish_reasons_are_those_we_map():
    from pipeline.engine.translate import STOPS

    assert resolve("vllm.sampling_params", "RequestOutputKind").FINAL_ONLY
    reasons = set(resolve("vllm.v1.engine", "FINISH_REASON_STRINGS"))
    assert set(STOPS) <= reasons, f"vLLM's finish reasons are now {reasons}"
    assert reasons - set(STOPS) == {"error", "repetition"}, f"a new finish reason needs a meaning: {reasons}"


def test_samples_of_a_request_are_seeded_seed_plus_index():
    source = inspect.getsource(resolve("vllm.v1.engine.parallel_sampling", "ParentRequest"))
    assert "seed + index" in source, "vLLM's ParentRequest no longer seeds sample i with seed + i"


def test_registry_of_transfer_engines_is_where_we_look():
    registry = resolve("vllm.distributed.weight_transfer.factory", "WeightTransferEngineFactory")._registry
    import pipeline.engine.worker as worker

    assert registry[worker.BACKEND]() is worker.FolderTransfer
    worker.register()  # importing twice, as two engines in one process do, is harmless


def test_worker_extension_hides_none_of_the_workers_names():
    from pipeline.engine.worker import WeightWorker

    worker = resolve("vllm.v1.worker.gpu_worker", "Worker")
    ours = {name for name in vars(WeightWorker) if not name.startswith("__")}
    clash = {name for name in ours if any(name in vars(base) for base in worker.__mro__ if base is not WeightWorker)}
    assert not clash, f"vLLM's Worker now has {clash} itself"


def test_platform_rule_that_keeps_the_worker_in_process():
    source = inspect.getsource(resolve("vllm.platforms.cpu", "CpuPlatform").check_and_update_config)
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" in source, "vLLM no longer keeps the executor in-process on this variable"


def test_chunks_of_seeded_prefills_still_rewind_the_generator():
    """The reason chunked prefill is off on CPU; when this fails, the restriction may be lifted."""
    import torch

    source = inspect.getsource(resolve("vllm.v1.worker.gpu_model_runner", "GPUModelRunner"))
    assert "gen.set_offset(gen.get_offset()" in source
    with pytest.raises(RuntimeError, match="offset"):
        torch.Generator().get_offset()
