"""What a step costs. The unit is free; with the defaults it is one forward pass of the target on one sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from pipeline.config import UserError, nearest


@dataclass(frozen=True)
class CostModel:
    """Cost units of drafting and verifying.

    A target pass over `tokens` costs `fixed`, plus `per_token` for each token beyond `free_tokens`: while decoding is
    bound by memory, more tokens ride along for nothing. A draft round (one more token for every sequence) costs
    `draft_fixed` + `draft_per_sequence` x batch.
    """

    fixed: float = 1.0
    per_token: float = 0.0
    free_tokens: int = 0
    draft_fixed: float = 0.05
    draft_per_sequence: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            if getattr(self, item.name) < 0:
                raise UserError(f"the cost {item.name} must not be negative, it is {getattr(self, item.name)}")
        if self.fixed == 0:
            raise UserError("the cost `fixed` of a target pass must be above 0")

    @classmethod
    def from_config(cls, config: dict[str, float]) -> "CostModel":
        """From plain data. UserError for unknown names."""
        known = [item.name for item in fields(cls)]
        for name in config:
            if name not in known:
                raise UserError(f"unknown cost {name!r}{nearest(name, known)}")
        return cls(**config)

    def verify(self, tokens: int) -> float:
        """One target pass over `tokens` (sampled and draft tokens of all sequences)."""
        return self.fixed + self.per_token * max(0, tokens - self.free_tokens)

    def draft(self, rounds: int, batch: int) -> float:
        """`rounds` draft tokens for each of `batch` sequences."""
        return rounds * (self.draft_fixed + self.draft_per_sequence * batch)

    def step(self, batch: int, k: int) -> float:
        """Drafting `k` tokens a sequence and verifying them."""
        return self.draft(k, batch) + self.verify(batch * (1 + k))


@dataclass(frozen=True)
class Timing:
    """One measured step: `tokens` verified, `rounds` drafted for `batch` sequences, and how long both took."""

    tokens: int
    rounds: int
    batch: int
    seconds: float


def fit_costs(timings: Sequence[Timing]) -> CostModel:
    """The cost model, in seconds, that explains measured steps best.

    Least squares for every candidate `free_tokens` (0 and each token count seen); the one with the smallest squared
    residual wins, the smaller one on a tie. Needs at least 8 steps and two draft lengths, else UserError: without
    them drafting and verifying cannot be told apart.
    """
    if len(timings) < 8 or len({row.rounds for row in timings}) < 2:
        raise UserError("fitting costs needs at least 8 measured steps with two or more draft lengths")
    tokens, rounds, batch, seconds = (
        np.array([getattr(row, name) for row in timings], dtype=float)
        for name in ("tokens", "rounds", "batch", "seconds")
    )
    best, least = None, np.inf
    for free in sorted({0, *(row.tokens for row in timings)}):
        columns = np.stack([np.ones_like(tokens), np.maximum(0, tokens - free), rounds, rounds * batch], axis=1)
        found, *_ = np.linalg.lstsq(columns, seconds, rcond=None)
        found = np.maximum(found, 0.0)  # a cost below zero is noise
        residual = float(((columns @ found - seconds) ** 2).sum())
        if residual < least - 1e-12 and found[0] > 0:
            least, best = residual, CostModel(found[0], found[1], free, found[2], found[3])
    if best is None:
        raise UserError("the measured steps fit no cost model with a positive cost of a target pass; measure more")
    return best
