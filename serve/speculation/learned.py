"""A learned stopping rule for the draft: after each token it says go on or stop."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from serve.speculation.costs import CostModel
from serve.speculation.policy import Policy
from serve.speculation.state import State

FEATURES = 6


def features(state: State, depth: int) -> list[float]:
    """What the rule sees before draft token `depth` (from 0): bias, depth, log survival, acceptance, batch, phase."""
    rate = 0.6 if state.acceptance is None else min(0.99, max(0.01, state.acceptance))
    return [
        1.0,
        depth / state.k_max,
        max(-4.0, (depth + 1) * math.log(rate)),
        2.0 * rate - 1.0,
        math.log2(state.batch) / 4.0,
        1.0 if state.phase == "answer" else -1.0,
    ]


class LearnedDepth(Policy):
    """Draft depth chosen by a learned go-on-or-stop rule rewarded by throughput, after Learning to Draft.

    From Learning to Draft (arXiv 2603.01639) come the two actions after each draft token and the reward, emitted
    tokens per cost. What it leaves out: the size policy and tree drafts (engines here verify chains); the drafter's
    log-probs as observation (the length is ordered before drafting, so recent acceptance, batch and phase stand in);
    PPO with deep actor and critic, trained off-line on one request at a time and alternately with the size policy
    (here a logistic rule, by REINFORCE, while serving). Two more differences: the reward is tokens - g x cost, with g
    the running tokens per cost of the context, because maximising a mean of ratios is not maximising throughput; and
    a step shows what each drafted token brought by itself, so credit goes to single actions.

    `floor` is the least probability of either action: it keeps the rule looking after the text has changed.
    """

    name = "learned"

    def __init__(
        self,
        k_max: int,
        costs: CostModel,
        seed: int = 0,
        dwell: int = 1,
        rate: float = 0.3,
        floor: float = 0.02,
        half_life: float = 200.0,
    ) -> None:
        super().__init__(k_max, seed, dwell)
        self.costs, self.rate, self.floor = costs, rate, floor
        self.keep = 0.5 ** (1.0 / half_life)
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.weights = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        self.earned: dict[str, tuple[float, float]] = {}  # fading (tokens, cost) by context

    def go_on(self, state: State, depth: int) -> float:
        """Probability of drafting token `depth`."""
        logit = float(self.weights @ np.array(features(state, depth)))
        return self.floor + (1 - 2 * self.floor) / (1 + math.exp(-max(-30.0, min(30.0, logit))))

    def _choose(self, state: State) -> int:
        depth = 0
        while depth < state.limit and self.rng.random() < self.go_on(state, depth):
            depth += 1
        return depth

    def _learn(self, k: int, asked: Sequence[int], emitted: Sequence[int], cost: float, state: State) -> None:
        tokens, paid = self.earned.get(state.context, (0.0, 0.0))
        tokens, paid = self.keep * tokens + sum(emitted), self.keep * paid + cost
        self.earned[state.context] = tokens, paid
        price, batch = tokens / paid, len(emitted)
        # gains[d]: what draft token d brought, beyond what its cost is worth at the going rate, for one sequence
        gains = []
        for depth in range(k):
            accepted = sum(got - 1 > depth for got in emitted)
            extra = self.costs.step(batch, depth + 1) - self.costs.step(batch, depth)
            gains.append((accepted - price * extra) / batch)
        step = np.zeros(FEATURES)
        for depth in range(min(k + 1, state.limit)):
            went, probability = depth < k, self.go_on(state, depth)
            ahead = sum(gains[depth:])
            # A stop earns 0 from here on, so only the go-ons before it carry credit; d log pi / d logit is 1 - p.
            if went:
                step += ahead * (1 - probability) * np.array(features(state, depth))
        self.weights = np.clip(self.weights + self.rate * step, -8.0, 8.0)

    def _memory(self) -> dict[str, Any]:
        return {
            "weights": self.weights.tolist(),
            "earned": {context: list(sums) for context, sums in self.earned.items()},
            "rng": self.rng.bit_generator.state,
        }

    def _recall(self, saved: dict[str, Any]) -> None:
        self.weights = np.array(saved["weights"], dtype=float)
        self.earned = {context: (float(a), float(b)) for context, (a, b) in saved["earned"].items()}
        self.rng.bit_generator.state = saved["rng"]
