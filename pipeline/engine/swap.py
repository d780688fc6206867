"""A weight update, on the engine's thread, between two steps: four phases, then proof."""

import time
from dataclasses import dataclass
from typing import Any

from pipeline.engine.requests import EngineBroken, SwapRefused


@dataclass(frozen=True)
class Applied:
    """What the worker echoed after an update: tensor count, and seconds during which no step ran."""

    tensors: int
    pause_seconds: float


def apply_snapshot(engine: Any, folder: str, version: int, digest: str) -> Applied:
    """Load a verified snapshot into every worker of `engine` (a vLLM `LLMEngine`) and confirm it.

    Nothing is in flight between two steps, so no pause is needed. Running requests are preempted and their KV cache,
    like every cached prefix, is dropped: both were computed with the old weights. SwapRefused before anything is
    touched; any later error leaves the weights unknown, and the caller must stop the engine.
    """
    began = time.monotonic()
    try:
        engine.collective_rpc("check_snapshot", args=(folder, version, digest))
    except Exception as error:
        raise SwapRefused(str(error)) from error
    update = {"folder": folder, "version": version, "digest": digest}
    engine.collective_rpc("start_weight_update")
    engine.collective_rpc("update_weights", kwargs={"update_info": update})
    engine.collective_rpc("finish_weight_update")
    tensors = _confirm(engine.collective_rpc("loaded_weights"), version, digest)
    if not engine.reset_prefix_cache(reset_running_requests=True):
        raise EngineBroken(f"the prefix cache still holds values of the weights before version {version}")
    engine.set_weight_version(str(version))
    return Applied(tensors, time.monotonic() - began)


def _confirm(echoes: list[dict[str, str | int] | None], version: int, digest: str) -> int:
    """The tensor count on which all workers agree; EngineBroken unless each echoes this version and digest."""
    counts = set()
    for rank, echo in enumerate(echoes):
        found = (echo or {}).get("version"), (echo or {}).get("digest")
        if found != (version, digest):
            raise EngineBroken(f"worker {rank} answers {found} after the update to version {version} ({digest[:12]})")
        counts.add(int((echo or {})["tensors"]))
    if len(counts) != 1:
        raise EngineBroken(f"workers loaded different numbers of tensors: {sorted(counts)}")
    return counts.pop()
