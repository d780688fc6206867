"""Policies that know the costs and estimate the acceptance: goodput (estimate, then maximise) and Thompson sampling."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from serve.speculation.acceptance import SHRINK, AcceptanceEstimate, expected_tokens
from serve.speculation.costs import CostModel
from serve.speculation.policy import Policy
from serve.speculation.state import PHASES, State, examined


def best_length(rates: Sequence[float], state: State, costs: CostModel) -> tuple[int, list[float]]:
    """The length with the most expected tokens per cost unit (the shorter on a tie), and that value by length."""
    tokens = expected_tokens(rates[: state.limit])
    values = [state.batch * total / costs.step(state.batch, k) for k, total in enumerate(tokens)]
    return max(range(len(values)), key=lambda k: (values[k], -k)), values


class _Estimating(Policy):
    """Keeps one acceptance estimate a phase, and watches whether the cost model agrees with what steps cost."""

    def __init__(self, k_max: int, costs: CostModel, seed: int = 0, dwell: int = 1, half_life: float = 100.0) -> None:
        super().__init__(k_max, seed, dwell)
        self.costs = costs
        self.estimates = {phase: AcceptanceEstimate(k_max, half_life) for phase in PHASES}
        self.counters |= {"predicted_cost": 0.0}

    def _learn(self, k: int, asked: Sequence[int], emitted: Sequence[int], cost: float, state: State) -> None:
        # Compared with the counter `cost`, this shows a cost model that is wrong, which no choice would show.
        tokens = len(asked) + sum(asked)
        self.counters["predicted_cost"] += self.costs.draft(max(asked), len(asked)) + self.costs.verify(tokens)
        self.estimates[state.phase].update(asked, emitted)

    def _memory(self) -> dict[str, Any]:
        return {"estimates": {phase: estimate.state_dict() for phase, estimate in self.estimates.items()}}

    def _recall(self, saved: dict[str, Any]) -> None:
        for phase, estimate in self.estimates.items():
            estimate.load_state_dict(saved["estimates"][phase])


class Goodput(_Estimating):
    """Maximises expected emitted tokens per cost unit, "off" being length 0.

    The objective is that of SmartSpec (arXiv 2406.14066), which predicts acceptance for a whole request stream and
    step times from profiles; left out are its choice between drafters and its tree verification. Here acceptance is
    estimated by draft position and phase. Every `probe_every` decisions the length goes one above the best (again
    and again while such probes are accepted), so that a drafter that has become useful is noticed. A length is left
    only for one that is `margin` better.
    """

    name = "goodput"

    def __init__(
        self,
        k_max: int,
        costs: CostModel,
        seed: int = 0,
        dwell: int = 1,
        half_life: float = 100.0,
        probe_every: int = 48,
        margin: float = 0.01,
    ) -> None:
        super().__init__(k_max, costs, seed, dwell, half_life)
        self.probe_every, self.margin = probe_every, margin
        self.unprobed = dict.fromkeys(PHASES, 0)
        self.chosen = dict.fromkeys(PHASES, -1)
        self.counters |= {"probes": 0}

    def _choose(self, state: State) -> int:
        phase = state.phase
        best, values = best_length(self.estimates[phase].rates(), state, self.costs)
        before = self.chosen[phase]
        if 0 <= before < len(values) and values[best] < values[before] * (1 + self.margin):
            best = before
        self.chosen[phase] = best
        self.unprobed[phase] += 1
        if self.unprobed[phase] >= self.probe_every and best < state.limit:
            self.unprobed[phase] = 0
            self.counters["probes"] += 1
            return best + 1
        return best

    def _learn(self, k: int, asked: Sequence[int], emitted: Sequence[int], cost: float, state: State) -> None:
        super()._learn(k, asked, emitted, cost, state)
        if k > self.chosen[state.phase] >= 0:
            # Only the token beyond the best length was in question; those before it are accepted anyway.
            reached = [accepted >= k for accepted, tries in map(examined, asked, emitted) if tries >= k]
            if reached and sum(reached) / len(reached) > self.estimates[state.phase].rates()[k - 1]:
                self.unprobed[state.phase] = self.probe_every  # promising: look again at once

    def _memory(self) -> dict[str, Any]:
        return super()._memory() | {"unprobed": dict(self.unprobed), "chosen": dict(self.chosen)}

    def _recall(self, saved: dict[str, Any]) -> None:
        super()._recall(saved)
        self.unprobed = {phase: int(saved["unprobed"][phase]) for phase in PHASES}
        self.chosen = {phase: int(saved["chosen"][phase]) for phase in PHASES}


class Thompson(_Estimating):
    """Draws each position's acceptance from its Beta posterior and takes the best length for the draw.

    Thompson sampling with counts that fade at every step, drafts or not: a length that is never tried becomes
    uncertain again and is tried, so no probing schedule is needed.
    """

    name = "thompson"

    def __init__(self, k_max: int, costs: CostModel, seed: int = 0, dwell: int = 1, half_life: float = 100.0) -> None:
        super().__init__(k_max, costs, seed, dwell, half_life)
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def _choose(self, state: State) -> int:
        estimate, draws, before = self.estimates[state.phase], [], 0.5
        for hits, tries in zip(estimate.hits, estimate.tries, strict=True):
            low, high = hits + SHRINK * before, tries - hits + SHRINK * (1 - before)
            draws.append(float(self.rng.beta(low + 1e-3, high + 1e-3)))
            before = (hits + SHRINK * before) / (tries + SHRINK)
        return best_length(draws, state, self.costs)[0]

    def _learn(self, k: int, asked: Sequence[int], emitted: Sequence[int], cost: float, state: State) -> None:
        super()._learn(k, asked, emitted, cost, state)
        if not any(asked):
            self.estimates[state.phase].fade()

    def _memory(self) -> dict[str, Any]:
        return super()._memory() | {"rng": self.rng.bit_generator.state}

    def _recall(self, saved: dict[str, Any]) -> None:
        super()._recall(saved)
        self.rng.bit_generator.state = saved["rng"]
