"""Where a block lies: `<path>/<engine digest>/<weights digest>/<2 signs>/<key>.kv`.

The key is a hash over the tokens from the prompt's start to the block's end (and the tenant's salt). What else decides
the values in a block is in the two digests: how the engine computes and stores them, and the weights. Engines that
agree in both share a root; after a swap there is another one.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BLOCK_SUFFIX = ".kv"
PART_SUFFIX = ".part"  # being written
DIGEST_SIGNS = 32


def engine_digest(parts: Mapping[str, Any]) -> str:
    """Identity of all that decides a block's bytes beside tokens and weights; `parts` is plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:DIGEST_SIGNS]


def root_name(engine: str, weights: str) -> str:
    """The root for these weights (hex digest) under an engine digest, relative to the disk's path.

    ValueError for weights that are no hex digest: the name becomes a path.
    """
    if len(weights) < DIGEST_SIGNS or not set(weights) <= set("0123456789abcdef"):
        raise ValueError(f"{weights!r} is no hex digest of at least {DIGEST_SIGNS} signs")
    return f"{engine}/{weights[:DIGEST_SIGNS]}"


def block_file(root: Path, key: bytes) -> Path:
    """The file of the block with this key."""
    name = key.hex()
    return root / name[:2] / (name + BLOCK_SUFFIX)
