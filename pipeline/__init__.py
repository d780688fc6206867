"""DECS pipeline: teach a reasoning model to stop at the answer, and serve the result."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.trainer import DECSTrainer

__all__ = ["DECSTrainer"]


def __getattr__(name: str) -> Any:
    if name == "DECSTrainer":
        from pipeline.trainer import DECSTrainer

        return DECSTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
