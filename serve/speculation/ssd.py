"""Speculative speculative decoding: what it would gain, computed and simulated. The engine runs `ssd_proposer.py`.

After "Speculative Speculative Decoding" (Saguaro, arXiv 2603.03251): while the target verifies a draft, the drafter, on
hardware of its own, prepares the next draft for the likely outcomes (so many tokens accepted, this token added). If
the outcome is among them, the next draft is ready at once; else a backup drafter works or the step goes without.

From the paper: the shape of the cache (branches spread over outcomes, with misses that fall as a power of the branches
at a position) and the choice of the backup by batch size. Left out: its changed sampling, which lowers the drafter's
probability of cached tokens so that the target's correction falls on them, and which needs the drafter's
probabilities inside the verifier. Temperature enters only through `alpha` and `top`. Costs are in target passes.
"""

import heapq
from dataclasses import dataclass

from pipeline.config import UserError

BACKUPS = ("none", "fast", "neural")


@dataclass(frozen=True)
class Saguaro:
    """One setting. `k` draft tokens, each accepted with `alpha`; `draft_cost` a draft token; `branches` in the cache
    for each request; the token after the accepted ones is the drafter's favourite with `top` and outside its first F
    with (1 - top) F^-decay. The backup "neural" is the drafter itself (the batch waits), "fast" costs nothing and is
    accepted with `fast_alpha`, "none" emits one token. `widest` caps the branches at one position.
    """

    k: int = 4
    alpha: float = 0.8
    draft_cost: float = 0.05
    branches: int = 16
    batch: int = 1
    backup: str = "neural"
    fast_alpha: float = 0.3
    top: float = 0.6
    decay: float = 1.0
    widest: int = 64

    def __post_init__(self) -> None:
        if self.backup not in BACKUPS:
            raise UserError(f"unknown backup {self.backup!r}; known: {', '.join(BACKUPS)}")
        if min(self.k, self.batch, self.widest) < 1 or self.branches < 0 or self.draft_cost < 0 or self.decay <= 0:
            raise UserError(f"{self}: k, batch and widest must be at least 1, branches and draft_cost not negative")
        if self.top < (1 - self.top) * (1 - 2**-self.decay):
            raise UserError(f"top={self.top} is less than the chance of the drafter's second choice; raise it")
        if not all(0 <= rate < 1 for rate in (self.alpha, self.fast_alpha, self.top)):
            raise UserError("alpha, fast_alpha and top must lie in [0, 1)")


def outcomes(alpha: float, k: int) -> list[float]:
    """Probability [k + 1] that exactly 0 ... k of `k` draft tokens are accepted."""
    return [alpha**j * (1 - alpha) for j in range(k)] + [alpha**k]


def covered(setting: Saguaro, branches: int) -> float:
    """Probability that the token the target adds is among the drafter's first `branches`."""
    return 0.0 if branches == 0 else 1 - (1 - setting.top) * branches**-setting.decay


def fan_out(setting: Saguaro, alpha: float, k: int) -> list[int]:
    """Branches [k + 1] by number of accepted tokens that make a hit most likely with `setting.branches` in all.

    Each next branch goes where it adds most; a position's gains only fall, so that is the optimum. With many branches
    it becomes the paper's geometric shape, alpha^(j / (1 + decay)), capped at `widest`.
    """
    chances, spread = outcomes(alpha, k), [0] * (k + 1)

    def gain(j: int) -> float:
        return chances[j] * (covered(setting, spread[j] + 1) - covered(setting, spread[j]))

    queue = [(-gain(j), j) for j in range(k + 1)]
    heapq.heapify(queue)
    for _ in range(setting.branches):
        if not queue:
            break
        _, j = heapq.heappop(queue)
        spread[j] += 1
        if spread[j] < setting.widest:
            heapq.heappush(queue, (-gain(j), j))
    return spread


def hit_rate(setting: Saguaro, alpha: float, k: int) -> float:
    """Probability that the outcome of verifying `k` tokens accepted with `alpha` is in the cache."""
    spread = fan_out(setting, alpha, k)
    return sum(chance * covered(setting, f) for chance, f in zip(outcomes(alpha, k), spread, strict=True))


def emitted(alpha: float, k: int) -> float:
    """Expected tokens of verifying `k` draft tokens: 1 + alpha + ... + alpha^k."""
    return sum(alpha**j for j in range(k + 1))


@dataclass(frozen=True)
class Forecast:
    """Expected tokens per target pass's worth of cost, of one sequence: plain decoding is 1."""

    hit_rate: float
    goodput: float
    ordinary: float

    @property
    def gain(self) -> float:
        """Over ordinary speculation with the same drafter and draft length."""
        return self.goodput / self.ordinary


def backup_draft(setting: Saguaro) -> tuple[float, int]:
    """Acceptance and length of the draft that follows a miss."""
    return {"neural": (setting.alpha, setting.k), "fast": (setting.fast_alpha, setting.k), "none": (0.0, 0)}[
        setting.backup
    ]


def forecast(setting: Saguaro) -> Forecast:
    """The steady state. A pass costs max(1, drafting) because both run at once; with the neural backup the whole batch
    also waits for drafting when any of its sequences missed."""
    drafting = setting.k * setting.draft_cost
    after_hit = hit_rate(setting, setting.alpha, setting.k)
    alpha, k = backup_draft(setting)
    after_miss = after_hit if setting.backup == "neural" else hit_rate(setting, alpha, k)
    prepared = after_miss / (1 - after_hit + after_miss) if after_miss or after_hit < 1 else 1.0
    tokens = prepared * emitted(setting.alpha, setting.k) + (1 - prepared) * emitted(alpha, k)
    wait = (1 - after_hit**setting.batch) * drafting if setting.backup == "neural" else 0.0
    ordinary = emitted(setting.alpha, setting.k) / (1 + drafting)
    hits = prepared * after_hit + (1 - prepared) * after_miss
    return Forecast(hits, tokens / (max(1.0, drafting) + wait), ordinary)
