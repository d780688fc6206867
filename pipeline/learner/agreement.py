"""Small collectives that keep ranks honest: what must be equal is compared, not assumed."""

from typing import Any

import torch.distributed as dist


def from_rank_zero(value: Any) -> Any:
    """Rank 0's `value`, on every rank. Collective."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def agree(value: Any, what: str) -> None:
    """Raises `RuntimeError`, on every rank, naming the first two ranks that differ about `what`. Collective.

    A rank that goes on with another batch, or with none, would leave the others waiting in a collective call.
    """
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    for rank, other in enumerate(values):
        if other != values[0]:
            raise RuntimeError(f"ranks differ about {what}: rank 0 has {values[0]}, rank {rank} has {other}")
