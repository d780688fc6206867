"""How much of prompts began as earlier ones did, and how long ago: from their tokens, whatever a cache remembered."""

from collections.abc import Sequence
from statistics import median


def prefix_figures(prompts: Sequence[Sequence[int]], replies: Sequence[int], block: int) -> dict[str, float | int]:
    """`shared_prefix_share` and `reuse_distance_tokens` of prompts [N][P] in the order they were sent, with the lengths
    of their replies [N], by blocks of `block` tokens.

    The distance of a use is what a cache has to hold to still know it: the different blocks of prompts used since, and
    the replies' tokens. Its median is over requests that share anything; without any there is none.
    """
    used: dict[int, int] = {}  # block, by its own and all earlier tokens -> request that used it last
    shared, distances = 0, []
    for number, prompt in enumerate(prompts):
        blocks = _blocks(prompt, block)
        known = [name for name in blocks if name in used]
        if known:
            since = used[known[-1]]
            between = sum(last > since for last in used.values())
            distances.append(between * block + sum(replies[since:number]))
        shared += len(known) * block
        used |= dict.fromkeys(blocks, number)
    total = sum(map(len, prompts))
    found: dict[str, float | int] = {"shared_prefix_share": round(shared / total, 4) if total else 0.0}
    return found | ({"reuse_distance_tokens": max(1, round(median(distances)))} if distances else {})


def _blocks(prompt: Sequence[int], block: int) -> list[int]:
    """A name for each whole block: of its tokens and of all before them."""
    names, above = [], 0
    for start in range(0, len(prompt) - block + 1, block):
        above = hash((above, *prompt[start : start + block]))
        names.append(above)
    return names
