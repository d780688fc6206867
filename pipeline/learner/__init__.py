"""The learner: token streams in, new weights out. Blind to rewards, engines and tracking.

Building batches needs only numpy; names that need torch, DeepSpeed or Ray load when first used.
"""

from importlib import import_module
from typing import Any

from pipeline.learner.plan import plan_micro_batches, rank_batches, split_rows
from pipeline.learner.streams import MiniBatch, RankBatch, TokenStreams

_LAZY = {
    "token_logprobs": "loss",
    "ppo_clip_loss": "loss",
    "summarise": "loss",
    "build_engine": "deepspeed_engine",
    "full_state_dict": "deepspeed_engine",
    "load_model": "deepspeed_engine",
    "train_function": "train_function",
    "fit": "launch",
}

__all__ = ["MiniBatch", "RankBatch", "TokenStreams", "plan_micro_batches", "rank_batches", "split_rows", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
