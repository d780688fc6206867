"""From logged decisions to a draft-length table that needs no learning while serving."""

from collections.abc import Iterable

from pipeline.config import UserError
from serve.speculation.costs import CostModel, Timing
from serve.speculation.fixed import Table
from serve.speculation.goodput import best_length
from serve.speculation.logs import Decision
from serve.speculation.state import PHASES, State, bucket, examined

MIN_STEPS = 30  # logged steps before a length, or a context, counts


class _Context:
    """What the logs say about one phase and batch bucket."""

    def __init__(self, k_max: int) -> None:
        self.steps = 0
        self.used = [0] * (k_max + 1)
        self.tokens = [0.0] * (k_max + 1)
        self.cost = [0.0] * (k_max + 1)
        self.hits, self.tries = [0] * k_max, [0] * k_max

    def add(self, row: Decision) -> None:
        self.steps += 1
        self.used[row.k] += 1
        self.tokens[row.k] += sum(row.emitted)
        self.cost[row.k] += row.cost
        for asked, emitted in zip(row.asked, row.emitted, strict=True):
            accepted, tries = examined(asked, emitted)
            for position in range(tries):
                self.tries[position] += 1
                self.hits[position] += position < accepted

    def best_used(self, min_steps: int) -> int | None:
        """The length with the most tokens per cost unit among those used often enough."""
        enough = [k for k, count in enumerate(self.used) if count >= min_steps]
        return max(enough, key=lambda k: (self.tokens[k] / self.cost[k], -k)) if enough else None

    def best_computed(self, batch: int, costs: CostModel, min_steps: int) -> int | None:
        """The length with the most expected tokens per cost unit, up to the deepest position examined often enough."""
        rates = []
        for hits, tries in zip(self.hits, self.tries, strict=True):
            if tries < min_steps:
                break
            rates.append(hits / tries)
        if not rates:
            return None
        return best_length(rates, State(batch, k_max=len(rates)), costs)[0]


def fit_table(logs: Iterable[Decision], costs: CostModel | None = None, min_steps: int = MIN_STEPS) -> Table:
    """The table of best draft lengths, by phase and batch bucket, that the logs support.

    Without `costs` a length is judged by the tokens and costs of the steps that used it, so the logs must hold steps
    at several lengths (policy `ucb` or `thompson`). With `costs` it is computed from acceptance by position, and logs
    at one long length are enough. A context with too little evidence takes the length of the nearest smaller bucket of
    its phase, else the nearest larger, else the other phase's. UserError when no context has enough.
    """
    contexts: dict[tuple[str, int], _Context] = {}
    k_max: int | None = None
    for row in logs:
        if k_max not in (None, row.state.k_max):
            raise UserError(f"the logs mix k_max={k_max} and {row.state.k_max}; fit them apart")
        k_max = row.state.k_max
        key = row.state.phase, bucket(row.state.batch)
        contexts.setdefault(key, _Context(k_max)).add(row)
    if k_max is None:
        raise UserError("no decisions in the logs; run the endpoint with a decision log first")
    known: dict[str, dict[int, int]] = {phase: {} for phase in PHASES}
    for (phase, start), context in contexts.items():
        found = context.best_used(min_steps) if costs is None else context.best_computed(start, costs, min_steps)
        if found is not None:
            known[phase][start] = found
    rows = [row for row in known.values() if row]
    if not rows:
        most = max(context.steps for context in contexts.values())
        raise UserError(f"no context has {min_steps} comparable steps (the fullest has {most}); log longer")
    return Table(k_max, {phase: row or dict(rows[0]) for phase, row in known.items()})


def timings(logs: Iterable[Decision]) -> list[Timing]:
    """Measured steps for `fit_costs`. A step verifies one decision and drafts for the next, so its time belongs to
    both: each row is paired with its follower, and rows without a measured time or without a follower are left out."""
    found, before = [], None
    for row in logs:
        if before is not None and before.seconds is not None and row.step == before.step + 1:
            tokens = len(before.asked) + sum(before.asked if before.drafted is None else before.drafted)
            found.append(Timing(tokens, max(row.asked), len(row.asked), before.seconds))
        before = row
    return found
