"""A bandit over draft lengths that needs no cost model: discounted UCB, one set of arms for each context."""

import math
from collections.abc import Sequence
from typing import Any

from serve.speculation.policy import Policy
from serve.speculation.state import State, examined


class _Arms:
    """Discounted sums by draft length: steps and sequences seen, tokens emitted, cost paid."""

    def __init__(self, count: int) -> None:
        self.sequences = [0.0] * count  # whose tokens at this length are known
        self.tokens = [0.0] * count
        self.pulls = [0.0] * count
        self.cost = [0.0] * count  # of a step at this length, divided by its sequences


class UCB(Policy):
    """Takes the length with the highest upper bound on tokens per cost unit, from observed costs alone.

    Discounted UCB (Garivier and Moulines, arXiv 0805.3415) by phase and batch bucket, as BanditSpec (2505.15141) and
    Nightjar (2512.22420) do over speculative settings; their regret bounds, drafter choice and memory offloading are
    left out. A step that drafted k tokens also shows what every shorter length would have emitted, and is counted
    there; only the cost of a length must be seen by using it. `width` is the width of the bound in units of the best
    mean; sums fade with `discount` at every observation of their context.
    """

    name = "ucb"

    def __init__(self, k_max: int, seed: int = 0, dwell: int = 1, discount: float = 0.995, width: float = 0.12) -> None:
        super().__init__(k_max, seed, dwell)
        self.discount, self.width = discount, width
        self.arms: dict[str, _Arms] = {}

    def _choose(self, state: State) -> int:
        arms = self.arms.setdefault(state.context, _Arms(self.k_max + 1))
        lengths = range(state.limit, -1, -1)  # the longest first: it teaches about the others
        for k in lengths:
            if arms.pulls[k] < 1e-3:
                arms.pulls[k] = max(arms.pulls[k], 1e-3)  # asked for; the answer may come a step later
                return k
        seen = [k for k in lengths if arms.cost[k] > 0 and arms.sequences[k] > 0]
        if not seen:
            return state.limit
        means = {k: arms.tokens[k] / arms.sequences[k] / (arms.cost[k] / arms.pulls[k]) for k in seen}
        total, best = sum(arms.pulls), max(means.values())

        def bound(k: int) -> tuple[float, int]:
            evidence = max(arms.pulls[k], 1e-3)
            return means[k] + self.width * best * math.sqrt(math.log(max(math.e, total)) / evidence), -k

        return max(seen, key=bound)

    def _learn(self, k: int, asked: Sequence[int], emitted: Sequence[int], cost: float, state: State) -> None:
        arms = self.arms.setdefault(state.context, _Arms(self.k_max + 1))
        for sums in (arms.sequences, arms.tokens, arms.pulls, arms.cost):
            sums[:] = [self.discount * value for value in sums]
        arms.pulls[k] += 1
        arms.cost[k] += cost / len(emitted)
        for length in range(k + 1):
            arms.sequences[length] += len(emitted)
            for want, got in zip(asked, emitted, strict=True):
                arms.tokens[length] += 1 + min(examined(want, got)[0], length)

    def _memory(self) -> dict[str, Any]:
        return {context: {name: list(sums) for name, sums in vars(arms).items()} for context, arms in self.arms.items()}

    def _recall(self, saved: dict[str, Any]) -> None:
        self.arms = {}
        for context, sums in saved.items():
            self.arms[context] = _Arms(self.k_max + 1)
            for name, values in sums.items():
                setattr(self.arms[context], name, [float(value) for value in values])
