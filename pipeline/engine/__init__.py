"""The only room besides the endpoint that imports vLLM: start, generate, score, swap.

Importing this package brings in neither torch nor vLLM: torch comes with `RolloutEngine`, vLLM with its start.
"""

from typing import TYPE_CHECKING

from pipeline.engine.effective import EffectiveOptions
from pipeline.engine.options import EngineOptions, engine_env
from pipeline.engine.requests import (
    EngineBroken,
    EngineError,
    EngineTimeout,
    GenerateRequest,
    SwapReceipt,
    SwapRefused,
)

if TYPE_CHECKING:
    from pipeline.engine.actor import RolloutActor
    from pipeline.engine.rollout import RolloutEngine

_LAZY = {"RolloutActor": "pipeline.engine.actor", "RolloutEngine": "pipeline.engine.rollout"}

__all__ = [
    "EffectiveOptions",
    "EngineBroken",
    "EngineError",
    "EngineOptions",
    "EngineTimeout",
    "GenerateRequest",
    "RolloutActor",
    "RolloutEngine",
    "SwapReceipt",
    "SwapRefused",
    "engine_env",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
