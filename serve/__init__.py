"""The Ray Serve endpoint: an OpenAI-compatible server whose weights are swapped in place.

`serve.client` needs neither Ray nor vLLM; `serve.app:build` is what a Serve config names as its import path.
"""

from serve.client import Endpoint, SwapRefused, SwapReport, deploy, status, swap
from serve.policy import Policy, fingerprint

__all__ = ["Endpoint", "Policy", "SwapRefused", "SwapReport", "deploy", "fingerprint", "status", "swap"]
