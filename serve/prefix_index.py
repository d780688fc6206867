"""Which replica saw the start of a prompt before, so that its prefix cache is used again. Pure.

The method is that of cache-aware load balancers (SGLang's router, Ray Serve LLM's PrefixCacheAffinityRouter): longest
known prefix first, as long as the loads are not too far apart. Prefixes are kept as chained hashes of blocks, as
vLLM's prefix cache keeps them, so memory is bounded and old ones are forgotten.
"""

import hashlib
import json
import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping

BLOCK = 32  # characters; less than vLLM's blocks of 16 or 32 tokens mostly hold
MAX_CHARACTERS = 32_768  # of a prompt; what follows decides nothing
MAX_BLOCKS = 100_000  # some 50 MB
LEAST_SHARE = 0.1  # of a prompt that must be known for it to count


class PrefixIndex:
    """Prompts by the replicas they were sent to; at most `max_blocks` blocks, the least recently seen go first."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._seen: OrderedDict[bytes, set[str]] = OrderedDict()
        self._max = max_blocks

    def __len__(self) -> int:
        return len(self._seen)

    def matches(self, blocks: list[bytes], replicas: Iterable[str]) -> dict[str, int]:
        """How many of the prompt's first blocks each of these replicas has seen in a row; those with none are left
        out."""
        left, found = set(replicas), {}
        for count, block in enumerate(blocks, 1):
            left &= self._seen.get(block, set())
            if not left:
                break
            found |= dict.fromkeys(left, count)
        return found

    def remember(self, blocks: list[bytes], replica: str) -> None:
        """Notes that this replica computes the prompt."""
        for block in reversed(blocks):  # the first block is the last to be forgotten
            self._seen.setdefault(block, set()).add(replica)
            self._seen.move_to_end(block)
        while len(self._seen) > self._max:
            self._seen.popitem(last=False)

    def forget(self, replica: str) -> None:
        """A replica that is gone: its name must not keep places."""
        for block in [block for block, names in self._seen.items() if replica in names]:
            self._seen[block].discard(replica)
            if not self._seen[block]:
                del self._seen[block]


def blocks_of(text: str) -> list[bytes]:
    """A hash for each whole block of the text, each over all before it."""
    hashes, before = [], b""
    for start in range(0, min(len(text), MAX_CHARACTERS) - BLOCK + 1, BLOCK):
        block = text[start : start + BLOCK].encode("utf-8", "surrogatepass")
        before = hashlib.blake2b(before + block, digest_size=8).digest()
        hashes.append(before)
    return hashes


def choose(index: PrefixIndex, blocks: list[bytes], loads: Mapping[str, float], imbalance: float) -> str:
    """The replica for a prompt, of those that hold at most `imbalance` requests more than the least loaded: the one
    that knows most of it, of equals the least loaded. One for a new prompt is drawn by its first block, so that
    routers beside each other agree; one without a whole block goes to the least loaded.

    `loads`: requests by replica, at least one.
    """
    least = min(loads.values())
    if not blocks:
        return random.choice([name for name, load in loads.items() if load == least])
    fit = [name for name, load in loads.items() if load <= least + imbalance]
    known = index.matches(blocks, fit)
    most = max(known.values(), default=0)
    if most < LEAST_SHARE * len(blocks):
        return min(fit, key=lambda name: _draw(blocks[0], name))
    best = [name for name, count in known.items() if count == most]
    return min(best, key=lambda name: (loads[name], _draw(blocks[0], name)))


def _draw(block: bytes, name: str) -> bytes:
    """Rendezvous hashing: each block has its own order of the replicas."""
    return hashlib.blake2b(block + name.encode(), digest_size=8).digest()


def prompt_text(body: bytes) -> str:
    """What of a request's body its prompt begins with; empty when there is nothing to go by (no JSON, or cut off).
    Never raises: bodies come from anyone, before any check."""
    try:
        request = json.loads(body)
        return "\n".join(_parts(request)) if isinstance(request, dict) else ""
    except (ValueError, RecursionError):
        return ""


def _parts(request: Mapping[str, object]) -> list[str]:
    prompt = next((request[name] for name in ("messages", "prompt", "input") if request.get(name)), None)
    parts: list[str] = []
    if prompt is not None:
        parts += [json.dumps(request["tools"])] if request.get("tools") else []  # templates put them first
        _collect(request.get("instructions"), parts)
        _collect(prompt, parts)
    return parts


def _collect(value: object, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(value)
    elif isinstance(value, list) and value and all(type(item) is int for item in value):
        parts.append(" ".join(map(str, value)))
    elif isinstance(value, list):
        for item in value:
            _collect(item, parts)
    elif isinstance(value, dict):
        for name in ("role", "content", "text"):
            if value.get(name):
                _collect(value[name], parts)
