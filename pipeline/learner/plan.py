"""Who computes which rows, in which forward pass. Pure, and the same answer for the same input."""

from collections.abc import Sequence

from pipeline.config import UserError
from pipeline.learner.streams import MiniBatch, RankBatch, TokenStreams


def plan_micro_batches(lengths: Sequence[int], ranks: int, max_tokens: int) -> list[list[list[int]]]:
    """`plan[rank][micro]` are row indices; each row is used exactly once.

    Rows are dealt to the ranks from the longest down, to and fro (0 1 1 0 0 1 ...), so that ranks differ by no more
    than one row and, in tokens, by no more than the longest row; and the k-th micro-batches of all ranks are alike.
    Each rank fills micro-batches in that order up to `max_tokens` padded tokens. All ranks have the same number of
    micro-batches, and so make the same collective calls: a rank with fewer gets empty ones. Raises `UserError`
    where one row alone exceeds `max_tokens`.
    """
    if ranks < 1:
        raise ValueError(f"cannot plan for {ranks} ranks")
    if lengths and max(lengths) > max_tokens:
        raise UserError(
            f"a row of {max(lengths)} tokens does not fit into learner.micro_batch_tokens={max_tokens}; "
            "raise it to at least engine.max_model_len"
        )
    dealt = _deal(sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)), ranks)
    plan = [_fill(rows, lengths, max_tokens) for rows in dealt]
    most = max(len(micros) for micros in plan)
    return [micros + [[] for _ in range(most - len(micros))] for micros in plan]


def _deal(rows: Sequence[int], ranks: int) -> list[list[int]]:
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for place, row in enumerate(rows):
        lap, seat = divmod(place, ranks)
        dealt[seat if lap % 2 == 0 else ranks - 1 - seat].append(row)
    return dealt


def _fill(rows: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    micros: list[list[int]] = []
    for row in rows:  # longest first, so a micro-batch's first row sets its width
        if micros and (len(micros[-1]) + 1) * lengths[micros[-1][0]] <= max_tokens:
            micros[-1].append(row)
        else:
            micros.append([row])
    return micros


def split_rows(rows: int, parts: int) -> list[list[int]]:
    """Row indices 0..rows-1 in order, in at most `parts` runs whose sizes differ by no more than one; none empty."""
    parts = min(parts, rows)
    ends = [rows * part // parts for part in range(parts + 1)] if parts else []
    return [list(range(start, end)) for start, end in zip(ends, ends[1:], strict=False)]


def rank_batches(
    streams: TokenStreams, *, batch_id: str, ranks: int, max_tokens: int, mini_batches: int = 1
) -> list[RankBatch]:
    """The whole batch, cut for every rank: `[rank]`.

    Rows are split in order into `mini_batches` optimiser steps (fewer when there are fewer rows), each step planned
    by `plan_micro_batches`. Raises `UserError` for a batch without rows.
    """
    if not len(streams):
        raise UserError(f"batch {batch_id!r} has no rows: nothing was left after filtering; offer more problems a step")
    digest = streams.digest()
    minis: list[list[MiniBatch]] = [[] for _ in range(ranks)]
    for rows in split_rows(len(streams), mini_batches):
        part = streams.take(rows)
        for rank, micros in enumerate(plan_micro_batches(part.lengths, ranks, max_tokens)):
            minis[rank].append(MiniBatch(tuple(part.take(micro) for micro in micros), part.tokens))
    return [RankBatch(batch_id, digest, tuple(mine)) for mine in minis]
