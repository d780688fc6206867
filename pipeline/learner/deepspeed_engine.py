"""A Hugging Face causal language model inside a DeepSpeed engine, on CPU (gloo) or GPU (nccl), ZeRO 0 to 3.

`torch.distributed` must be initialised before `build_engine`. Every function that takes an engine is collective:
all ranks call it, in the same order.
"""

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.config import UserError
from pipeline.config.schema import Learner
from pipeline.learner.loss import token_logprobs
from pipeline.weights import Reference, make_reference

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

MAX_BUCKET_ELEMENTS = 50_000_000  # DeepSpeed allocates a whole reduce bucket; small models need far less


def import_deepspeed() -> ModuleType:
    """DeepSpeed, told to compile nothing on a machine without GPU.

    Its shared-memory communication op would be built inside `init_distributed`: minutes of work, and a build killed
    half-way leaves a lock that makes every later start wait for ever. Plain gloo serves.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    if not torch.cuda.is_available():
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def load_model(path: str, dtype: str, *, gradient_checkpointing: bool = False) -> nn.Module:
    """The causal language model in the folder `path`, weights in `dtype`, dropout off.

    Dropout would make the learner's log-probabilities differ from the engine's, which never drops.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if not os.path.isfile(os.path.join(path, "config.json")):
        raise UserError(f"model.path={path!r} holds no config.json; give a Hugging Face model folder")
    config = AutoConfig.from_pretrained(path)
    for name, value in vars(config).items():
        if name.endswith(("dropout", "pdrop")) and isinstance(value, float):
            setattr(config, name, 0.0)
    config.use_cache = False
    model = AutoModelForCausalLM.from_pretrained(
        path, config=config, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    )
    if gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def deepspeed_config(
    learner: Learner, *, bf16: bool, elements: int, zero_options: Mapping[str, Any], universal: bool
) -> dict[str, Any]:
    """DeepSpeed's own configuration. Accumulation is steered by `accumulate_and_step`, so its step count stays 1."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": learner.grad_clip,
        "steps_per_print": 1_000_000_000,
        "bf16": {"enabled": bf16},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": learner.zero_stage,
            "reduce_bucket_size": min(elements, MAX_BUCKET_ELEMENTS),
            **zero_options,
        },
        "checkpoint": {"load_universal": universal},
    }


def build_engine(
    model: nn.Module,
    learner: Learner,
    *,
    zero_options: Mapping[str, Any] | None = None,
    universal: bool = False,
) -> "DeepSpeedEngine":
    """Wrap `model` with AdamW at the constant rate `learner.lr`. bf16 weights get float32 masters.

    `zero_options` are merged into DeepSpeed's `zero_optimization`; `universal` makes the engine load checkpoints
    converted to DeepSpeed's universal form. Collective.
    """
    deepspeed = import_deepspeed()
    if not dist.is_initialized():
        raise RuntimeError("initialise torch.distributed before building the learner's engine")
    deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    config = deepspeed_config(
        learner,
        bf16=parameters[0].dtype == torch.bfloat16,
        elements=sum(parameter.numel() for parameter in parameters),
        zero_options=zero_options or {},
        universal=universal,
    )
    optimizer = torch.optim.AdamW(parameters, lr=learner.lr, betas=learner.betas, weight_decay=learner.weight_decay)
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=optimizer)
    engine.train()
    return engine


def set_hyperparameters(engine: "DeepSpeedEngine", learner: Learner) -> None:
    """Put the configured rate, betas and decay in effect; a loaded checkpoint brings the ones it was saved with."""
    for group in engine.optimizer.param_groups:
        group.update(lr=learner.lr, betas=tuple(learner.betas), weight_decay=learner.weight_decay)


def accumulate_and_step(engine: "DeepSpeedEngine", losses: Sequence[Callable[[], Tensor]]) -> float:
    """Backward through each loss in turn, then one optimiser step; returns the gradient's norm before clipping.

    Each callable makes one micro-batch's scalar loss, already divided by the step's global token count, so that the
    applied gradient is that of the sum over all micro-batches of all ranks. DeepSpeed averages over ranks, hence the
    factor. All ranks must bring the same number of losses. Raises `FloatingPointError`, on every rank, where the
    norm is not finite. Collective.
    """
    world = dist.get_world_size()
    for index, loss in enumerate(losses):
        engine.set_gradient_accumulation_boundary(index == len(losses) - 1)
        engine.backward(loss() * world)
    plain = not hasattr(engine.optimizer, "_global_grad_norm")
    norm = _gradient_norm(engine.module) if plain else math.nan
    engine.step()
    norm = norm if plain else float(engine.get_global_grad_norm())
    if not math.isfinite(norm):
        raise FloatingPointError(f"the gradient's norm is {norm} at optimiser step {engine.global_steps}")
    return norm


def _gradient_norm(model: nn.Module) -> float:
    norms = [parameter.grad.float().norm() for parameter in model.parameters() if parameter.grad is not None]
    return float(torch.stack(norms).norm()) if norms else 0.0


def forward_logits(engine: "DeepSpeedEngine", input_ids: Tensor, start: int = 0) -> Tensor:
    """Logits [B, W - start, V] of right-padded `input_ids` [B, W], for positions from `start` on.

    No attention mask: under causal attention no real token sees the padding to its right, and positions count from
    the row's first token, so a row's logits do not depend on how far it is padded.
    """
    options: dict[str, Any] = {"use_cache": False}
    width = input_ids.shape[1]
    trims = "logits_to_keep" in inspect.signature(engine.module.forward).parameters
    if trims:
        options["logits_to_keep"] = width - start
    logits = engine(input_ids=input_ids, **options).logits
    return logits if trims else logits[:, start:]


def full_state_dict(engine: "DeepSpeedEngine") -> dict[str, Tensor]:
    """All weights on the CPU, in the learner's type: on rank 0; an empty dict elsewhere.

    Gathered module by module under ZeRO 3, so that no rank holds more than one module's weights beside its shard. A
    tensor shared by several modules appears once, under its first name (a tied output head is dropped). Raises
    `ValueError`, naming it, for a tensor without elements. Collective.
    """
    state: dict[str, Tensor] = {}
    seen: set[int] = set()
    keep = dist.get_rank() == 0
    for prefix, module in engine.module.named_modules():
        fresh = {name: value for name, value in _own_tensors(module) if id(value) not in seen}
        seen.update(id(value) for value in fresh.values())
        with _gathered(list(fresh.values())):
            for name, value in fresh.items() if keep else ():
                full = f"{prefix}.{name}" if prefix else name
                if value.numel() == 0:
                    raise ValueError(f"weight {full!r} holds no elements; it was not gathered from its shards")
                state[full] = value.detach().to("cpu", copy=True)
    return state


def _own_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The module's own parameters and the buffers that belong in a checkpoint."""
    buffers = [item for item in module._buffers.items() if item[0] not in module._non_persistent_buffers_set]
    return [(name, value) for name, value in [*module._parameters.items(), *buffers] if value is not None]


def _gathered(tensors: list[Tensor]) -> Any:
    sharded = [tensor for tensor in tensors if hasattr(tensor, "ds_id")]
    return import_deepspeed().zero.GatheredParameters(sharded, modifier_rank=None) if sharded else nullcontext()


def reference_logprobs(engine: "DeepSpeedEngine") -> Reference:
    """The learner's own log-probs of a fixed sequence: whoever serves its weights must compute the same. Collective."""

    def logprobs_of(token_ids: list[int]) -> list[float]:
        ids = torch.tensor([token_ids], device=engine.device)
        with torch.no_grad():
            logits = engine(input_ids=ids).logits[0, :-1]
        return token_logprobs(logits, ids[0, 1:], 1.0).tolist()

    return make_reference(engine.module.config.vocab_size, logprobs_of)
