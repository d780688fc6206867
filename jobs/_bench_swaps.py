"""The swaps of a measurement, beside its load: when each begins, how it went, and the replica that is killed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs._bench_endpoint import Target, replica_process
from jobs._bench_replies import Confirmed, Context
from jobs._bench_weights import Alternating, Bad, bad_snapshots
from pipeline.config import RunConfig, UserError
from serve import client
from serve.policy import Policy, fingerprint
from serve.promotion.way_back import FAILURES

KINDS = 6  # of broken snapshots
SLACK_S = 60.0
POLL_S = 0.5
STALL_S = 600.0  # longer than a request may take


@dataclass
class Record:
    """What happened, in seconds of the replies' clock."""

    marks: set[str]
    confirmed: list[Confirmed]
    swaps: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    kill: dict[str, Any] | None = None

    def context(self) -> Context:
        """What replies are judged by."""
        kill = (self.kill["at"], self.kill["until"]) if self.kill else None
        return Context(frozenset(self.marks), tuple(self.confirmed), kill)


class Swaps:
    """Swaps `target` through rising versions. `total` swaps in all, spread over the phases that call `during`."""

    def __init__(self, cfg: RunConfig, target: Target, weights: Alternating, total: int, spoil: Path | None) -> None:
        self.cfg, self.target, self.weights, self.total = cfg, target, weights, total
        policy = target.policy
        self.version, self.done = policy.version, 0
        self.record = Record({policy.fingerprint}, [Confirmed(time.monotonic(), policy.version)])
        self.spoil = spoil  # where broken snapshots go; None: none are asked for
        self.kill_after: int | None = None  # swaps

    @property
    def deadline(self) -> float:
        return client.change_deadline_s(self.cfg.serve.drain_deadline_s)

    async def during(self, count: int, progress: Callable[[], float], note: Callable[[str], object]) -> None:
        """Makes `count` swaps, spread evenly over a phase of which `progress()` is the part that is over (0 to 1).
        Where the phase stands still for `STALL_S`, the rest is left out, which is a failure."""
        for index in range(count):
            if not await self._reached(progress, (index + 0.5) / count):
                return
            await self._one(note)
            await self._ask_for_bad_ones()
            if self.kill_after is not None and self.done >= self.kill_after:
                self.kill_after = None
                note("killing a replica")
                await self._kill()

    async def _reached(self, progress: Callable[[], float], share: float) -> bool:
        seen, since = -1.0, time.monotonic()
        while (now := progress()) < share:
            if now > seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_S:
                self.record.failures.append(
                    f"waited {STALL_S:g} s for any reply of the load: {self.total - self.done} swaps are left out"
                )
                return False
            await asyncio.sleep(0.02)
        return True

    async def _one(self, note: Callable[[str], object]) -> None:
        self.done += 1
        snapshot = await asyncio.to_thread(self.weights.version, self.version + 1, self.done)
        digest = snapshot.manifest.digest
        note(f"swap {self.done}/{self.total}")
        began = time.monotonic()
        self.record.marks.add(fingerprint(snapshot.version, digest))
        try:
            report = await self._swap(Policy(snapshot.version, snapshot.uri, digest, self.cfg.serve.swap_mode))
        except FAILURES as error:
            self.record.failures.append(f"swap to version {snapshot.version}: {type(error).__name__}: {error}")
            return
        finally:
            self.version = snapshot.version
        ended = time.monotonic()
        self.record.confirmed.append(Confirmed(ended, snapshot.version))
        states = [_figures(state) for state in report.replicas.values()]
        self.record.swaps.append(
            {"version": snapshot.version, "began": began, "ended": ended, "seconds": report.seconds, "replicas": states}
        )

    async def _swap(self, policy: Policy) -> client.SwapReport:
        return await asyncio.to_thread(client.swap, self.target.dashboard, policy, self.deadline)

    async def _ask_for_bad_ones(self) -> None:
        """Its share of the broken snapshots, so that all kinds come up between the swaps. Each must be refused for its
        own reason, and the endpoint go on with what it has."""
        if self.spoil is None:
            return
        mine = [kind for kind in range(KINDS) if kind % self.total == self.done - 1]
        if not mine:
            return
        source = self.weights.kept[0]
        folder = self.spoil / f"after-{self.done}"
        made: list[Bad] = await asyncio.to_thread(bad_snapshots, folder, source, self.version + 1)
        for bad in (made[kind] for kind in mine):
            await self._must_refuse(bad)

    async def _must_refuse(self, bad: Bad) -> None:
        try:
            await self._swap(Policy(bad.version, bad.folder, bad.digest))
        except client.SwapRefused as error:
            reason = str(error)
            self.record.refused[bad.kind] = reason
            if bad.expected not in reason:
                self.record.failures.append(f"the {bad.kind} snapshot was refused for another reason: {reason}")
        except FAILURES as error:
            self.record.failures.append(f"the {bad.kind} snapshot: {type(error).__name__}: {error}")
        else:
            self.record.failures.append(f"the {bad.kind} snapshot was served")

    async def _kill(self) -> None:
        """Kills a replica outright and waits until as many as before answer again."""
        before = await self._states()
        if not before:
            self.record.failures.append("no replica was killed: none answers")
            return
        name, state = sorted(before.items())[0]
        process = replica_process(state, self.target.dashboard)
        at = time.monotonic()
        process.kill()
        self.record.kill = {"replica": name, "pid": process.pid, "at": at, "until": at + SLACK_S}
        end = at + self.cfg.serve.start_deadline_s
        while time.monotonic() < end:
            await asyncio.sleep(POLL_S)
            now = await self._states()
            if name not in now and len(now) >= len(before):
                self.record.kill["recovered_s"] = round(time.monotonic() - at, 1)
                self._check_replacement(now)
                break
        else:
            self.record.failures.append(
                f"{self.cfg.serve.start_deadline_s:.0f} s after replica {name} was killed, {len(before)} replicas do "
                "not answer"
            )
        self.record.kill["until"] = time.monotonic()

    async def _states(self) -> dict[str, dict[str, Any]]:
        """What the replicas say; none where nobody can be asked, which is a failure."""
        try:
            return (await asyncio.to_thread(client.status, self.target.dashboard)).replicas
        except FAILURES as error:
            self.record.failures.append(f"the replicas' states: {type(error).__name__}: {error}")
            return {}

    def _check_replacement(self, now: dict[str, dict[str, Any]]) -> None:
        held = {name: state["version"] for name, state in now.items()}
        if wrong := {name: version for name, version in held.items() if version != self.record.confirmed[-1].version}:
            self.record.failures.append(f"after the kill, replicas came up on other versions: {wrong}")

    async def restore(self) -> None:
        """Back to what was served before."""
        await self._swap(self.target.policy)


def check_kill(target: Target) -> None:
    """UserError where a replica cannot be killed for the measurement."""
    replicas = target.endpoint.replicas
    if len(replicas) < 2:
        raise UserError(f"--kill-replica needs another replica to go on: {len(replicas)} runs; deploy serve.replicas=2")
    for state in replicas.values():
        replica_process(state, target.dashboard)


FIGURES = ("pause_seconds", "drain_seconds", "verify_seconds", "swap_seconds", "bytes", "drained", "parity")


def _figures(state: dict[str, Any]) -> dict[str, Any]:
    return {"replica": state["replica"]} | {name: state.get(name) for name in FIGURES}


def of_all(swaps: Sequence[dict[str, Any]], name: str) -> list[float]:
    """A figure of every replica in every swap, where it is known."""
    return [state[name] for swap in swaps for state in swap["replicas"] if state[name] is not None]
