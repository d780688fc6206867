"""The loop: the thin Ray actors that join the rooms."""

from importlib import import_module
from typing import Any

_LAZY = {"train": "run", "RunFailed": "run"}

__all__ = [*_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
