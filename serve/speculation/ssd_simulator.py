"""Monte Carlo of speculative speculative decoding, with the real branch cache: checks the forecast's arithmetic."""

from dataclasses import dataclass

import numpy as np

from serve.speculation.branches import BranchCache, Outcome
from serve.speculation.ssd import Saguaro, backup_draft, fan_out


@dataclass(frozen=True)
class SsdRun:
    """Totals over all sequences: look-ups that hit (share), and tokens of one sequence per unit of cost."""

    hit_rate: float
    goodput: float


def simulate_ssd(setting: Saguaro, passes: int, seed: int) -> SsdRun:
    """`passes` target passes over `setting.batch` sequences.

    Tokens are named by their rank in the drafter's order, so the cache is asked with real outcomes: (accepted, rank).
    """
    rng, cache = np.random.Generator(np.random.PCG64(seed)), BranchCache(capacity=setting.batch)
    own, backup = (setting.alpha, setting.k), backup_draft(setting)
    spreads = {draft: fan_out(setting, *draft) for draft in (own, backup)}
    pending, lengths = [own] * setting.batch, [0] * setting.batch
    tokens, cost, drafting = 0, 0.0, setting.k * setting.draft_cost
    for _ in range(passes):
        missed = False
        for sequence, draft in enumerate(list(pending)):
            name, epoch = f"r{sequence}", lengths[sequence]
            cache.prepare(name, epoch, _branches(spreads[draft]))
            outcome = _verify(rng, setting, *draft)
            lengths[sequence] += outcome[0] + 1
            tokens += outcome[0] + 1
            hit = cache.take(name, epoch, outcome) is not None
            pending[sequence] = own if hit else backup
            missed |= not hit
        cost += max(1.0, drafting) + (drafting if missed and setting.backup == "neural" else 0.0)
    return SsdRun(cache.hit_rate or 0.0, tokens / setting.batch / cost)


def _branches(spread: list[int]) -> dict[Outcome, tuple[int, ...]]:
    """A one-token stand-in draft for every outcome in the cache: simulation needs only whether there is one."""
    return {(accepted, rank): (rank,) for accepted, width in enumerate(spread) for rank in range(1, width + 1)}


def _verify(rng: np.random.Generator, setting: Saguaro, alpha: float, k: int) -> Outcome:
    """Accepted tokens, and the rank of the token the target adds (rank 1: the drafter's favourite)."""
    accepted = 0
    while accepted < k and rng.random() < alpha:
        accepted += 1
    # P(rank > F) = (1 - top) F^-decay: the power law by which misses fall, turned round.
    beyond = rng.random()
    if beyond >= 1 - setting.top:
        return accepted, 1
    return accepted, 1 + int(((1 - setting.top) / max(beyond, 1e-12)) ** (1 / setting.decay))
