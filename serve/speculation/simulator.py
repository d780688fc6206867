"""A deterministic simulator: a policy against a workload, in cost units, every policy meeting the same draws."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from serve.speculation.fixed import Static
from serve.speculation.logs import Decision
from serve.speculation.policy import Policy
from serve.speculation.state import RecentAcceptance, State, asked_for, longest_cap
from serve.speculation.workloads import Segment, Workload


@dataclass(frozen=True)
class Run:
    """Totals of a run: tokens emitted, cost units paid, and how often each draft length was chosen."""

    tokens: int
    cost: float
    lengths: Counter

    @property
    def goodput(self) -> float:
        """Emitted tokens per cost unit."""
        return self.tokens / self.cost


TEXT = 8192  # tokens of luck a sequence has before it repeats


@lru_cache(maxsize=8)
def luck(batch: int, seed: int) -> list[list[float]]:
    """Uniform numbers [batch][TEXT]: a draft token is accepted when the number of its place in the text is below the
    acceptance rate. Every policy meets the same numbers, whichever lengths it chooses."""
    return np.random.Generator(np.random.PCG64(seed)).random((batch, TEXT)).tolist()


class _Text:
    """Where each sequence stands, and which drafts would be accepted there."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload, self.numbers = workload, luck(workload.widest, seed)
        self.places = [0] * workload.widest
        self.written = 0.0  # tokens, averaged over the sequences of each step

    def segment(self) -> tuple[Segment, list[float]]:
        segment, token = self.workload.at(self.written)
        return segment, segment.rates(token, self.workload.k_max)

    def advance(self, asked: tuple[int, ...], rates: list[float]) -> tuple[int, ...]:
        """Verifies drafts of the lengths `asked`; tokens emitted by sequence."""
        emitted = []
        for sequence, want in enumerate(asked):
            numbers, place, accepted = self.numbers[sequence], self.places[sequence], 0
            while accepted < want and numbers[(place + accepted) % TEXT] < rates[accepted]:
                accepted += 1
            self.places[sequence] += accepted + 1
            emitted.append(accepted + 1)
        self.written += sum(emitted) / len(emitted)
        return tuple(emitted)


def simulate(
    policy: Policy,
    workload: Workload,
    tokens: int,
    seed: int,
    lag: int = 1,
    log: Callable[[Decision], None] | None = None,
) -> Run:
    """Run `policy` until every sequence has written `tokens` tokens on average.

    `lag` is how many further decisions are made before a step's outcome is told: 1 in an engine that drafts at the
    end of one step and verifies in the next.
    """
    recent, lengths, waiting = RecentAcceptance(), Counter(), deque()
    text, emitted_all, paid, step = _Text(workload, seed), 0, 0.0, 0

    def tell() -> None:
        decision = waiting.popleft()
        policy.observe(decision.k, decision.emitted, decision.cost, decision.state, decision.asked)
        recent.update(decision.asked, decision.emitted)
        if log is not None:
            log(decision)

    while text.written < tokens:
        segment, rates = text.segment()
        caps = segment.caps or (None,) * segment.batch
        state = State(segment.batch, segment.phase, recent.value, longest_cap(caps), workload.k_max)
        k = policy.decide(state)
        asked = asked_for(k, caps)
        emitted = text.advance(asked, rates)
        cost = workload.costs.draft(max(asked), segment.batch) + workload.costs.verify(segment.batch + sum(asked))
        emitted_all, paid = emitted_all + sum(emitted), paid + cost
        lengths[k] += 1
        waiting.append(Decision(step, policy.name, k, asked, emitted, cost, state))
        step += 1
        if len(waiting) > lag:
            tell()
    while waiting:
        tell()
    return Run(emitted_all, paid, lengths)


def static_sweep(workload: Workload, tokens: int, seed: int) -> dict[int, Run]:
    """The baseline: every fixed draft length 0 ... k_max on the same luck."""
    return {k: simulate(Static(workload.k_max, k), workload, tokens, seed) for k in range(workload.k_max + 1)}
