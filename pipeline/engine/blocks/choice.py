"""Which of the block sizes that were tried to take: the largest that costs next to nothing beside the best.

Smaller blocks waste less at a request's end and find more of a prompt in the prefix cache; larger ones mean shorter
block tables, fewer hashes, and larger pieces where caches are moved. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.engine.blocks.replay import Replayed

COSTS = {"computed_tokens": "tokens computed", "held_tokens": "memory held", "steps": "steps"}


@dataclass(frozen=True)
class Choice:
    """The size to take, in tokens, and why."""

    size: int
    why: str


def choose(rows: Sequence[Replayed], tolerance: float) -> Choice:
    """The largest size that needs at most `tolerance` (0.02: 2 %) more than the best of all, in tokens computed, memory
    held and steps; where none does, the one whose three figures together are nearest to the best."""
    ordered = sorted(rows, key=lambda row: row.block_size)
    over = {row.block_size: excess(row, ordered) for row in ordered}
    good = [size for size, costs in over.items() if max(costs.values()) <= tolerance]
    size = max(good) if good else min(over, key=lambda size: (sum(over[size].values()), size))
    if not good:
        return Choice(
            size, f"none is within {tolerance:.0%} of the best in everything; in all it is nearest: {_told(over[size])}"
        )
    larger = next((other for other in over if other > size), None)
    beyond = f"; {larger} would need {_told(over[larger])}" if larger else "; no larger size was tried"
    return Choice(size, f"the largest within {tolerance:.0%} of the best: {_told(over[size])}{beyond}")


def excess(row: Replayed, rows: Sequence[Replayed]) -> dict[str, float]:
    """How far each of a row's costs is above the least among `rows`; 0.1: a tenth."""
    least = {name: min(getattr(other, name) for other in rows) for name in COSTS}
    return {name: getattr(row, name) / least[name] - 1 if least[name] else 0.0 for name in COSTS}


def _told(over: dict[str, float]) -> str:
    return ", ".join(f"{share:+.1%} {COSTS[name]}" for name, share in over.items())
