"""Between an engine's steps and a policy: who pays for what, and which outcome belongs to which decision."""

from collections.abc import Sequence
from dataclasses import dataclass

from serve.speculation.costs import CostModel
from serve.speculation.logs import Decision, DecisionLog
from serve.speculation.policy import Policy
from serve.speculation.state import PHASES, RecentAcceptance, State, asked_for, longest_cap

COUNTERS = ("orders", "settled", "drafted", "accepted", "cut", "log_errors")


@dataclass(frozen=True)
class Live:
    """A request that decodes: its phase, and its cap on draft tokens (None: none)."""

    phase: str = "answer"
    cap: int | None = None


@dataclass(frozen=True)
class Order:
    """One decision: its number, the draft length and the state it was made in."""

    number: int
    k: int
    state: State

    def allowed(self, cap: int | None) -> int:
        """Draft tokens that a request with this cap gets."""
        return asked_for(self.k, (cap,))[0]


@dataclass(frozen=True)
class Verified:
    """One request of a verified step: tokens it emitted, draft tokens it was given, its cap."""

    emitted: int
    drafted: int
    cap: int | None = None


class Controller:
    """Asks the policy for each step and tells it what came of it.

    An engine drafts at the end of one step and verifies in the next, so an outcome is settled against the order that
    drafted for it, and that order pays both the drafting and the verifying. `log` is written until it fails; then
    `log_errors` counts and serving goes on.
    """

    def __init__(self, policy: Policy, costs: CostModel, log: DecisionLog | None = None) -> None:
        self.policy, self.costs, self.log = policy, costs, log
        self.recent = RecentAcceptance()
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.by_length = dict.fromkeys(range(policy.k_max + 1), 0)  # orders of each draft length

    def order(self, batch: Sequence[Live]) -> Order:
        """A draft length for the requests that decode now; for none yet, as for one request about to answer."""
        batch = batch or (Live(),)
        phase = max(PHASES, key=lambda name: sum(live.phase == name for live in batch))
        cap = longest_cap([live.cap for live in batch])
        state = State(len(batch), phase, self.recent.value, cap, self.policy.k_max)
        self.counters["orders"] += 1
        k = self.policy.decide(state)
        self.by_length[k] += 1
        return Order(self.counters["orders"], k, state)

    def cut(self, order: Order, drafts: Sequence[Sequence[int]], caps: Sequence[int | None]) -> list[list[int]]:
        """Drafts no longer than ordered and than each request's cap; for drafters that do not listen to the order."""
        short = [list(draft[: order.allowed(cap)]) for draft, cap in zip(drafts, caps, strict=True)]
        self.counters["cut"] += sum(map(len, drafts)) - sum(map(len, short))
        return short

    def settle(self, order: Order, verified: Sequence[Verified], seconds: float | None = None) -> None:
        """What the verification of an order's drafts came to. A step in which none of its requests was run teaches
        nothing."""
        if not verified:
            return
        asked = asked_for(order.k, [row.cap for row in verified])
        emitted = tuple(row.emitted for row in verified)
        drafted = tuple(row.drafted for row in verified)
        cost = self.costs.draft(max(asked), len(asked)) + self.costs.verify(len(asked) + sum(drafted))
        self.policy.observe(order.k, emitted, cost, order.state, asked)
        self.recent.update(asked, emitted)
        self.counters["settled"] += 1
        self.counters["drafted"] += sum(drafted)
        self.counters["accepted"] += sum(emitted) - len(emitted)
        if self.log is not None:
            row = Decision(order.number, self.policy.name, order.k, asked, emitted, cost, order.state, drafted, seconds)
            self._write(row)

    def _write(self, row: Decision) -> None:
        try:
            self.log.write(row)
        except OSError:  # a full disk must not stop the engine
            self.counters["log_errors"] += 1
            self.log = None
