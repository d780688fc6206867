"""What the learner is fed: ragged token streams, split into ranks, mini-batches and micro-batches.

Plain numpy, so that whoever builds a batch needs no torch. Nothing here knows which reward made the advantages.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.traces.trace import VersionSpan

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TokenStreams:
    """B ragged rows; row i holds a prompt of P_i = `prompt_length[i]` tokens and a response of T_i.

    `input_ids[i]` [P_i + T_i] prompt then response; `advantages[i]` [T_i]; `behaviour_logprobs[i]` [T_i], natural
    log, of the distribution the engine sampled from; `mask[i]` [T_i], False where a token is not in the loss;
    `versions[i]` the spans of the weights that sampled the row; `drawn[i]` [T_i] (all True unless given), False where
    the engine did not draw the token after exactly the tokens before it in this row, so that learner and engine cannot
    be compared there. At such a place NaN in `behaviour_logprobs` says that no behaviour probability is known. Values
    at masked places are never read. Raises `ValueError`, naming the row, where shapes disagree or an unmasked value is
    not finite.
    """

    input_ids: tuple[Ints, ...]
    prompt_length: tuple[int, ...]
    advantages: tuple[Floats, ...]
    behaviour_logprobs: tuple[Floats, ...]
    mask: tuple[Bools, ...]
    problem_id: tuple[str, ...]
    versions: tuple[tuple[VersionSpan, ...], ...]
    drawn: tuple[Bools, ...] | None = None

    def __post_init__(self) -> None:
        rows = len(self.input_ids)
        if self.drawn is None:
            object.__setattr__(self, "drawn", tuple(np.ones(len(mask), dtype=np.bool_) for mask in self.mask))
        for name in ("prompt_length", "advantages", "behaviour_logprobs", "mask", "problem_id", "versions", "drawn"):
            if len(getattr(self, name)) != rows:
                raise ValueError(f"token streams hold {rows} rows but {len(getattr(self, name))} of {name}")
        for row in range(rows):
            self._check(row)

    def _check(self, row: int) -> None:
        where = f"token stream {row} (problem {self.problem_id[row]!r})"
        prompt, response = self.prompt_length[row], len(self.input_ids[row]) - self.prompt_length[row]
        if prompt < 1 or response < 0:
            raise ValueError(f"{where}: a prompt of {prompt} tokens does not fit {len(self.input_ids[row])} input ids")
        columns = {name: getattr(self, name)[row] for name in ("advantages", "behaviour_logprobs", "mask", "drawn")}
        for name, values in columns.items():
            if name in ("mask", "drawn") and values.dtype != np.bool_:
                raise ValueError(f"{where}: {name} has type {values.dtype}, not bool")
            if values.shape != (response,):
                raise ValueError(f"{where}: {name} has shape {values.shape}, the response {response} tokens")
        mask, unknown = columns["mask"], np.isnan(columns["behaviour_logprobs"]) & ~columns["drawn"]
        for name, fine in (("advantages", mask), ("behaviour_logprobs", mask & ~unknown)):
            if not np.isfinite(columns[name][fine]).all():
                raise ValueError(f"{where}: {name} is not finite at an unmasked token; mask it out or mend it")

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def lengths(self) -> tuple[int, ...]:
        """P_i + T_i of every row."""
        return tuple(len(ids) for ids in self.input_ids)

    @cached_property
    def tokens(self) -> int:
        """Unmasked response tokens of all rows: what a loss over these rows is divided by."""
        return int(sum(int(mask.sum()) for mask in self.mask))

    def take(self, rows: Sequence[int]) -> "TokenStreams":
        """The named rows, in that order; none is allowed."""
        return TokenStreams(
            *(
                tuple(column[row] for row in rows)
                for column in (
                    self.input_ids,
                    self.prompt_length,
                    self.advantages,
                    self.behaviour_logprobs,
                    self.mask,
                    self.problem_id,
                    self.versions,
                    self.drawn,
                )
            )
        )

    def digest(self) -> str:
        """sha256 (hex) of everything the loss reads; masked values and version spans do not count."""
        total = hashlib.sha256()
        for row, ids in enumerate(self.input_ids):
            mask = self.mask[row]
            total.update(f"{self.problem_id[row]}\0{self.prompt_length[row]}\0{len(ids)}\0".encode())
            total.update(np.ascontiguousarray(ids, np.int64).tobytes())
            total.update(mask.tobytes())
            total.update((mask & self.drawn[row]).tobytes())
            total.update(np.where(mask, self.advantages[row], 0).astype(np.float32).tobytes())
            total.update(np.where(mask, self.behaviour_logprobs[row], 0).astype(np.float32).tobytes())
        return total.hexdigest()


@dataclass(frozen=True)
class MiniBatch:
    """One optimiser step as one rank sees it.

    `micro_batches` are the rank's forward passes; every rank has the same number, some of them empty (weight 0).
    `global_tokens` is the loss denominator: the unmasked response tokens of this step over ALL ranks.
    """

    micro_batches: tuple[TokenStreams, ...]
    global_tokens: int


@dataclass(frozen=True)
class RankBatch:
    """One step's batch as one rank sees it. `batch_id` and `digest` are those of the whole batch, equal on all
    ranks, so that the ranks can tell whether they hold parts of the same one."""

    batch_id: str
    digest: str
    mini_batches: tuple[MiniBatch, ...]

    @property
    def global_tokens(self) -> int:
        """Unmasked response tokens of the whole batch over all ranks."""
        return sum(mini.global_tokens for mini in self.mini_batches)

    @property
    def shape(self) -> tuple[int, ...]:
        """Micro-batches per optimiser step; must be the same on every rank."""
        return tuple(len(mini.micro_batches) for mini in self.mini_batches)
