"""From a decision to what users get: gate, canary, all replicas, aliases; and back, whatever goes wrong on the way.

The endpoint, the registry and the replay are what is passed in, so the order of things can be tried in memory.
"""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipeline.config.schema import Gate
from serve.policy import Policy
from serve.promotion.check import Check, Decision, told
from serve.promotion.watch import States, Traffic, refusals_since, traffic_since, watch
from serve.promotion.way_back import FAILURES, Changeable, take_back

logger = logging.getLogger(__name__)


class Result(StrEnum):
    """What became of a candidate: refused before it got any traffic, or rolled back after; or left on, where the way
    back failed too."""

    PROMOTED = "promoted"
    REFUSED = "refused"
    ROLLED_BACK = "rolled back"
    LEFT_ON = "not taken back"


@dataclass(frozen=True)
class Outcome:
    """`checks` of the gate and of the canary; `seconds` the swap of all replicas took."""

    result: Result
    reason: str
    checks: tuple[Check, ...] = ()
    seconds: float | None = None

    @property
    def promoted(self) -> bool:
        return self.result is Result.PROMOTED


class Replicas(Changeable, Protocol):
    """The endpoint, watched and changed."""

    def states(self) -> States:
        """What each replica that answers says of itself."""
        ...

    def start_canary(self, policy: Policy, replicas: int) -> None: ...

    def swap(self, policy: Policy) -> float:
        """Seconds until every replica has confirmed it. Ends a canary."""
        ...


class Replay(Protocol):
    """Sends the frozen problems to the endpoint, labelled."""

    def running(self) -> AbstractContextManager[object]:
        """Sends them while the block runs."""
        ...

    def whole(self) -> None:
        """Sends them and returns when they are answered."""
        ...


class Promotion:
    """Takes a candidate that was measured to the users, or back. `set_champion()` moves the registry's aliases."""

    def __init__(
        self,
        endpoint: Replicas,
        replay: Replay,
        limits: Gate,
        set_champion: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint, self.replay, self.limits, self.set_champion = endpoint, replay, limits, set_champion
        self._clock, self._sleep = clock, sleep
        self.failed_looks = 0

    def run(self, candidate: Policy, present: Policy, decision: Decision) -> Outcome:
        """`present` is what the endpoint serves; it serves it again when this returns without a promotion, and when it
        raises (an interrupt too)."""
        if not decision.passed:
            return Outcome(Result.REFUSED, decision.reason, decision.checks)
        replicas = len(self.endpoint.states())
        if replicas < 1:
            return Outcome(Result.REFUSED, "no replica of the endpoint answers", decision.checks)
        outcome, left = None, ""
        try:
            outcome = self._tried(candidate, present, replicas)
        finally:
            if outcome is None or not outcome.promoted:
                left = self._back(candidate, present)
        checks = (*decision.checks, *outcome.checks)
        if left:
            return Outcome(Result.LEFT_ON, f"{outcome.reason}; {left}", checks)
        return Outcome(outcome.result, outcome.reason, checks, outcome.seconds)

    def _tried(self, candidate: Policy, present: Policy, replicas: int) -> Outcome:
        way = self._with_canary if replicas > 1 else self._alone
        try:
            return way(candidate, present, replicas)
        except FAILURES as error:
            return Outcome(Result.ROLLED_BACK, str(error) or type(error).__name__)

    def _back(self, candidate: Policy, present: Policy) -> str:
        within = self.limits.deadline_s
        left = take_back(self.endpoint, candidate, present, within, clock=self._clock, sleep=self._sleep)
        if left:
            logger.error(left)
        return left

    # --- several replicas: a part of the traffic first ---

    def _with_canary(self, candidate: Policy, present: Policy, replicas: int) -> Outcome:
        count = min(self.limits.canary_replicas, replicas - 1)
        self.endpoint.start_canary(candidate, count)
        with self.replay.running():
            seen = self._watched(candidate, present, count)
        if isinstance(seen, Outcome):
            return seen
        seconds = self.endpoint.swap(candidate)  # ends the canary
        self.set_champion()  # aliases move once every replica has confirmed; where they do not, all go back
        return Outcome(Result.PROMOTED, "all limits hold", seen, seconds)

    # --- one replica: there is no part of the traffic to give ---

    def _alone(self, candidate: Policy, present: Policy, replicas: int) -> Outcome:
        before = self.endpoint.states() if self.limits.replay else {}  # without a replay: all it has answered so far
        self.replay.whole()  # the present weights answer the same, to compare with
        reference = traffic_since(before, self.endpoint.states(), present.fingerprint)
        seconds = self.endpoint.swap(candidate)
        with self.replay.running():
            seen = self._watched(candidate, present, replicas, reference)
        if isinstance(seen, Outcome):
            return seen
        self.set_champion()
        return Outcome(Result.PROMOTED, "all limits hold", seen, seconds)

    def _watched(
        self, candidate: Policy, present: Policy, count: int, reference: Traffic | None = None
    ) -> tuple[Check, ...] | Outcome:
        """Looks until the soak is over and enough has been answered; the last checks, or why it goes back.

        `count` replicas must answer with the candidate. `reference` is what they are held against; None: what the
        other replicas answer meanwhile. A look that fails is silence: it ends the watch after gate.max_silence_s.
        """
        limits = self.limits
        started = answered = self._clock()
        first = self._look()
        while True:
            self._sleep(limits.look_every_s)
            states, now = self._look(), self._clock()
            first = first or states
            if sum(_serves(state, candidate) for state in states.values()) >= count:
                answered = now
            canary = traffic_since(first, states, candidate.fingerprint)
            others = reference if reference is not None else traffic_since(first, states, present.fingerprint)
            refusals = refusals_since(first, states, candidate.digest)
            checks = tuple(watch(canary, others, limits, refusals=refusals, silent_s=now - answered))
            if crossed := [check for check in checks if check.crossed]:
                return Outcome(Result.ROLLED_BACK, told(crossed), checks)
            soaked = now - started >= limits.soak_s
            if soaked and states and canary.requests >= limits.min_canary_requests:
                return checks
            if now - started > limits.soak_s + limits.deadline_s:
                return Outcome(
                    Result.ROLLED_BACK,
                    f"only {canary.requests} of the {limits.min_canary_requests} requests wanted "
                    f"(gate.min_canary_requests) reached the candidate within {now - started:.0f} s",
                    checks,
                )

    def _look(self) -> States:
        """What the replicas say; nothing where nobody could be asked."""
        try:
            return self.endpoint.states()
        except FAILURES as error:
            self.failed_looks += 1
            logger.warning("the replicas could not be looked at (failure %d): %s", self.failed_looks, error)
            return {}


def _serves(state: dict, policy: Policy) -> bool:
    return (state["version"], state["digest"]) == (policy.version, policy.digest)
