"""How a replica tells its engine's tiers which weights are loaded, and how they tell what they did.

The tiers run in the engine's own process, which no call of the replica reaches, so both talk through a folder of their
own: `weights` (replica to tiers) and `<tier>.json` (counters, tiers to replica).

A mark holds once: a tier that was reset keeps to itself until it finds a mark it has not seen. So whatever goes wrong
between a load and its mark, nothing computed with other weights is used.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import write_whole

FILE = "weights"
_MARK = re.compile(r"(\w+) ([0-9a-f]{32,})")


@dataclass(frozen=True)
class Mark:
    """`serial` tells one mark from another, `digest` is that of the weights in the engine."""

    serial: str
    digest: str


def marks_dir(extra: Mapping[str, Any]) -> Path:
    """The folder, from the connector's options. ValueError without one."""
    if not extra.get("marks_dir"):
        raise ValueError("these KV cache tiers belong to a replica, which gives them marks_dir; start it by jobs.serve")
    return Path(extra["marks_dir"])


def write_mark(folder: Path, digest: str) -> None:
    """Tells the tiers, at their next reset, that these weights are loaded."""
    write_whole(folder / FILE, f"{uuid.uuid4().hex} {digest}")


def read_mark(folder: Path) -> Mark | None:
    """The last mark; None without a sound one, whose digest is at least 32 hex signs."""
    try:
        text = (folder / FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    found = _MARK.fullmatch(text)
    return Mark(*found.groups()) if found else None


def write_counters(folder: Path, tier: str, counters: dict[str, Any]) -> None:
    """What a tier has done so far."""
    write_whole(folder / f"{tier}.json", json.dumps(counters))


def read_counters(folder: Path) -> dict[str, Any]:
    """Counters by tier; of a tier that has not told any, nothing."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        found[file.stem] = json.loads(file.read_text())
    return found
