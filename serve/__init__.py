"""The Ray Serve endpoint: an OpenAI-compatible server whose weights are swapped in place; and inference from Python.

`serve.client` needs neither Ray nor vLLM; `serve.app:build` is what a Serve config names as its import path.
`InferenceOptimizer` is read when it is asked for: most who import this package do without it.
"""

from typing import TYPE_CHECKING, Any

from serve.client import Endpoint, SwapRefused, SwapReport, deploy, status, swap
from serve.policy import Policy, fingerprint

if TYPE_CHECKING:
    from serve.inference import InferenceOptimizer

__all__ = [
    "Endpoint",
    "InferenceOptimizer",
    "Policy",
    "SwapRefused",
    "SwapReport",
    "deploy",
    "fingerprint",
    "status",
    "swap",
]


def __getattr__(name: str) -> Any:
    if name == "InferenceOptimizer":
        from serve.inference import InferenceOptimizer

        return InferenceOptimizer
    raise AttributeError(f"module 'serve' has no attribute '{name}'")
