"""What goes into an engine, what comes back beside traces, and its errors."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.errors import UserError

GREEDY_FLOOR = 0.01  # vLLM raises temperatures in (0, 0.01) to 0.01 without failing


class EngineError(RuntimeError):
    """The engine could not do what was asked; names the engine and its weights' version."""


class EngineBroken(EngineError):
    """The engine's weights or its process are in an unknown state: it refuses traffic until it is replaced."""


class EngineTimeout(EngineError):
    """A deadline passed; the error says what was waited for."""


class SwapRefused(EngineError):
    """New weights were turned down before anything was touched; the old ones keep serving."""


@dataclass(frozen=True)
class GenerateRequest:
    """One issue of one problem: `n` samples of `prompt_ids`.

    Sample i draws from a generator seeded with `seed + i`, whatever else is in the batch, so seeds of different
    issues must lie at least `n` apart. `max_new_tokens` counts the end-of-sequence token.
    """

    issue_id: str
    problem_id: str
    prompt_ids: tuple[int, ...]
    n: int
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 256

    def check(self, max_model_len: int, vocab_size: int) -> None:
        """Raise UserError for what vLLM would clip, clamp or reject midway."""
        where = f"issue '{self.issue_id}'"
        if self.n < 1 or self.max_new_tokens < 1:
            raise UserError(f"{where}: n and max_new_tokens must be at least 1")
        check_tokens(self.prompt_ids, vocab_size, where)
        if len(self.prompt_ids) + self.max_new_tokens > max_model_len:
            raise UserError(
                f"{where}: a prompt of {len(self.prompt_ids)} tokens and max_new_tokens {self.max_new_tokens} exceed "
                f"engine.max_model_len {max_model_len}; drop the problem, lower the second or raise the third"
            )
        if not 0 <= self.seed < 2**63 - self.n:
            raise UserError(f"{where}: seed {self.seed} is out of range; use 0 <= seed < 2**63 - n")
        self._check_distribution(where)

    def _check_distribution(self, where: str) -> None:
        if not 0 < self.top_p <= 1:
            raise UserError(f"{where}: top_p {self.top_p} is not in (0, 1]")
        if self.temperature != 0 and self.temperature < GREEDY_FLOOR:
            raise UserError(f"{where}: temperature {self.temperature} must be 0 (greedy) or at least {GREEDY_FLOOR}")
        if self.temperature == 0 and self.n > 1:
            raise UserError(f"{where}: {self.n} samples at temperature 0 would be identical; ask for one")


@dataclass(frozen=True)
class SwapReceipt:
    """A confirmed swap. `digest` and `tensors` are echoed by the worker; times in seconds.

    `pause_seconds` is how long no token was made; `changed` is False where the engine already had this version.
    """

    version: int
    digest: str
    seconds: float
    pause_seconds: float
    tensors: int
    changed: bool = True


def check_tokens(ids: Sequence[int], vocab_size: int, where: str) -> None:
    """Raise UserError unless `ids` is a non-empty list of token ids in [0, vocab_size)."""
    if not ids:
        raise UserError(f"{where}: the prompt is empty; give at least one token id")
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise UserError(f"{where}: token ids run from {min(ids)} to {max(ids)}; the model knows 0 to {vocab_size - 1}")
