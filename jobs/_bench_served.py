"""One server a row: vLLM's own, with the endpoint's engine arguments; what it runs with, and what it takes."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from jobs._bench_bare import MemoryWatch, bare_launch, started
from pipeline.config import RunConfig, UserError
from pipeline.engine.options import EngineOptions
from pipeline.weights import MANIFEST_NAME, read_manifest
from serve.effective import compare, differences
from serve.engine_config import FRONTEND, effective_engine, kv_tokens
from serve.levers import engine_kwargs
from serve.policy import DIGEST_SHOWN, fingerprint

GIB = 1 << 30
TOLD_S = 60.0  # for a busy server to say what it runs with


@dataclass
class Served:
    """A running server: its address, what was asked of its engine and what runs, the tokens its KV cache holds, and
    (once it has ended) the most memory its processes took."""

    url: str
    requested: dict[str, Any]
    effective: dict[str, Any]
    kv_tokens: int | None
    memory: dict[str, Any] = field(default_factory=dict)

    def not_in_effect(self) -> str:
        """What was asked for and does not run, as one sentence; empty where all is in effect."""
        rows = differences(compare(self.requested, self.effective))
        return "; ".join(f"{row.name}: {row.requested} was asked for, {row.effective} runs" for row in rows)


def requested_of(cfg: RunConfig, options: EngineOptions) -> dict[str, Any]:
    """vLLM's engine arguments of a row. Counting is on: drafts are counted only then."""
    found = {name: value for name, value in engine_kwargs(options, cfg).items() if name not in FRONTEND}
    return found | {"disable_log_stats": False}


def mark_of(folder: Path) -> str:
    """Of a snapshot, as an endpoint marks its replies; version 0 and zeros for other model folders."""
    if not (folder / MANIFEST_NAME).is_file():
        return fingerprint(0, "0" * DIGEST_SHOWN)
    manifest = read_manifest(folder)
    return fingerprint(manifest.version, manifest.digest)


@contextmanager
def serving(cfg: RunConfig, model: Path, folder: Path) -> Iterator[Served]:
    """The row's server, ready and on loopback; ended with all its processes at the end. UserError, with its last
    lines, when it does not start."""
    options = EngineOptions.from_config(cfg.engine)
    requested = requested_of(cfg, options)
    marked = {"fingerprint_mode": "custom", "fingerprint_value": mark_of(model)}
    launch = bare_launch(str(model), cfg.serve.model_id, requested | marked, options)
    launch = replace(launch, env=launch.env | {"VLLM_SERVER_DEV_MODE": "1"})  # it then says what it runs with
    with started(launch, folder, cfg.serve.start_deadline_s) as service:
        url = launch.urls["vllm"]
        told = _told(url)
        (folder / "vllm_config.json").write_text(json.dumps(told, indent=1))
        effective = effective_engine(_as_object(told), None, log_stats=True)
        served = Served(url, requested, effective, kv_tokens(effective))
        watch = MemoryWatch({"server": service.pid})
        watch.start()
        try:
            yield served
        finally:
            seen = watch.stop()
            served.memory = memory_of(seen, options.device)


def _told(url: str) -> dict[str, Any]:
    try:
        reply = httpx.get(f"{url}/server_info", params={"config_format": "json"}, timeout=TOLD_S, trust_env=False)
        return reply.raise_for_status().json()["vllm_config"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise UserError(f"vLLM's own server at {url} does not say what it runs with ({error})") from None


def _as_object(plain: Mapping[str, Any]) -> Any:
    """Attributes as vLLM's config has them; what is a mapping there stays one. A dtype comes as text."""
    found = {}
    for name, value in plain.items():
        if isinstance(value, dict) and name != "additional_config":
            told = {key: item.removeprefix("torch.") if isinstance(item, str) else item for key, item in value.items()}
            value = SimpleNamespace(**told)
        found[name] = value
    return SimpleNamespace(**found)


def memory_of(seen: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The peak in GiB, and of what: resident memory of the server's processes, or what the GPUs have in use."""
    if device == "cuda" and (used := _gpu_bytes()) is not None:
        return {"peak_gb": round(used / GIB, 3), "of": "the GPU, after the last request"}
    peak = seen.get("server", {}).get("peak")
    return {"peak_gb": None if peak is None else round(peak / GIB, 3), "of": "resident, all processes of the server"}


def _gpu_bytes() -> int | None:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        return sum(int(line) for line in told.split()) << 20
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
