"""One batch through the engine: collate, score, loss, optimiser steps, metrics summed over ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.config.schema import Learner
from pipeline.learner.deepspeed_engine import accumulate_and_step, forward_logits
from pipeline.learner.loss import SUMS, ppo_clip_loss, summarise, token_logprobs
from pipeline.learner.streams import MiniBatch, RankBatch, TokenStreams

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

PAD = 0  # any id in the vocabulary: padding is never attended to and never scored


@dataclass(frozen=True)
class Collated:
    """A micro-batch as tensors: `input_ids` [B, W], padded on the right, and the N unmasked response tokens, flat.

    Token n is `targets[n]`, scored by the logits of row `rows[n]` at position `places[n] + start`, which is the
    position before the target's own.
    """

    input_ids: Tensor
    start: int
    rows: Tensor
    places: Tensor
    targets: Tensor
    advantages: Tensor
    behaviour_logprobs: Tensor
    drawn: Tensor


def collate(streams: TokenStreams, device: torch.device) -> Collated:
    """Pad on the right. An empty micro-batch becomes one row of two tokens of which none is scored: its rank still
    makes the forward and backward calls the others wait for, and adds exactly nothing to the gradient."""
    input_ids = np.full((max(len(streams), 1), max(streams.lengths, default=2)), PAD, dtype=np.int64)
    for row, ids in enumerate(streams.input_ids):
        input_ids[row, : len(ids)] = ids
    start = min(streams.prompt_length, default=1) - 1
    counts = [int(mask.sum()) for mask in streams.mask]
    rows = np.repeat(np.arange(len(streams), dtype=np.int64), counts)
    places = _join(
        [np.flatnonzero(mask) + prompt - 1 for mask, prompt in zip(streams.mask, streams.prompt_length, strict=True)],
        np.int64,
    )

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device)

    return Collated(
        input_ids=tensor(input_ids),
        start=start,
        rows=tensor(rows),
        places=tensor(places - start),
        targets=tensor(input_ids[rows, places + 1]),
        advantages=tensor(_masked(streams.advantages, streams.mask)),
        behaviour_logprobs=tensor(_masked(streams.behaviour_logprobs, streams.mask)),
        drawn=tensor(_masked(streams.drawn, streams.mask, np.bool_)),
    )


def _masked(columns: tuple[np.ndarray, ...], masks: tuple[np.ndarray, ...], dtype: type = np.float32) -> np.ndarray:
    return _join([column[mask] for column, mask in zip(columns, masks, strict=True)], dtype)


def _join(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)


def score(engine: "DeepSpeedEngine", batch: Collated, temperature: float) -> Tensor:
    """The learner's log-probabilities [N] of the batch's unmasked tokens."""
    logits = forward_logits(engine, batch.input_ids, batch.start)
    return token_logprobs(logits[batch.rows, batch.places], batch.targets, temperature)


class _Totals:
    """Metrics of a batch: sums, one maximum, added up over micro-batches and then over ranks."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(len(SUMS) + 1, dtype=torch.float64, device=device)
        self.peak = torch.zeros(1, dtype=torch.float64, device=device)

    def add(self, loss: Tensor, metrics: dict[str, Tensor]) -> None:
        self.sums += torch.stack([loss.detach().double(), *(metrics[name].double() for name in SUMS)])
        self.peak = torch.maximum(self.peak, metrics["parity_abs_max"].double())

    def reduce(self) -> dict[str, float]:
        dist.all_reduce(self.sums)
        dist.all_reduce(self.peak, op=dist.ReduceOp.MAX)
        loss, *sums = self.sums.tolist()
        values = dict(zip(SUMS, sums, strict=True)) | {"parity_abs_max": float(self.peak)}
        return {"loss": loss, **summarise(values)}


def train_batch(engine: "DeepSpeedEngine", batch: RankBatch, learner: Learner, temperature: float) -> dict[str, float]:
    """All optimiser steps of one batch; metrics of the whole batch, the same on every rank. Collective.

    `loss` is the mean over optimiser steps of the token-mean loss, `grad_norm` that of the norm before clipping.
    A step whose tokens are all masked is skipped (momentum and decay would move the weights without any evidence)
    and counted in `skipped_steps`. See `loss.summarise` for the rest.
    """
    totals = _Totals(engine.device)
    steps = [mini for mini in batch.mini_batches if mini.global_tokens]
    old = _old_logprobs(engine, steps, temperature) if len(steps) > 1 else None
    norms = [
        _optimiser_step(engine, mini, learner, temperature, totals, old[index] if old else None)
        for index, mini in enumerate(steps)
    ]
    metrics = totals.reduce()
    done = max(len(steps), 1)
    metrics["loss"] /= done
    return metrics | {
        "grad_norm": sum(norms) / done,
        "lr": learner.lr,
        "optimiser_steps": float(len(steps)),
        "skipped_steps": float(len(batch.mini_batches) - len(steps)),
        "micro_batches": float(sum(batch.shape)),
    }


def _old_logprobs(engine: "DeepSpeedEngine", steps: list[MiniBatch], temperature: float) -> list[list[Tensor]]:
    """Scored before the first optimiser step moves the weights; needed only where there is a second."""
    with torch.no_grad():
        return [
            [score(engine, collate(micro, engine.device), temperature) for micro in mini.micro_batches]
            for mini in steps
        ]


def _optimiser_step(
    engine: "DeepSpeedEngine",
    mini: MiniBatch,
    learner: Learner,
    temperature: float,
    totals: _Totals,
    old: list[Tensor] | None,
) -> float:
    def micro_loss(index: int) -> Callable[[], Tensor]:
        def compute() -> Tensor:
            batch = collate(mini.micro_batches[index], engine.device)
            logprobs = score(engine, batch, temperature)
            loss, metrics = ppo_clip_loss(
                logprobs,
                logprobs.detach() if old is None else old[index],
                batch.behaviour_logprobs,
                batch.advantages,
                torch.ones_like(logprobs, dtype=torch.bool),
                mini.global_tokens,
                learner.clip_low,
                learner.clip_high,
                learner.dual_clip,
                learner.importance_cap,
                batch.drawn,
            )
            totals.add(loss, metrics)
            return loss

        return compute

    return accumulate_and_step(engine, [micro_loss(index) for index in range(len(mini.micro_batches))])
