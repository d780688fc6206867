"""The order of a weight swap, apart from what carries it out::

verify the snapshot   refused: nothing was touched, the old weights go on serving
close the gate        mode wait: drain up to a deadline; past it, or in mode keep, running requests go on
pause the engine
load, compare digests
resume
compare log-probs     with those the snapshot brings along
open the gate

Whatever fails after the engine was paused: the old weights are loaded again from their folder and confirmed alike.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Protocol, TypeVar

from pipeline.config import UserError
from serve.gate import Gate
from serve.policy import Policy

T = TypeVar("T")
CALL_S = 300.0  # for one call to the engine


class Engine(Protocol):
    """What a swap needs of an engine."""

    async def pause(self, mode: str) -> None: ...

    async def load(self, policy: Policy) -> str:
        """Loads the weights and returns the digest of what was loaded."""
        ...

    async def resume(self) -> None: ...

    async def parity(self, policy: Policy) -> float | None:
        """Mean |difference| (nats) of the engine's log-probs to the snapshot's own record; None where it has none."""
        ...


@dataclass
class Refusal:
    """The last snapshot that was not taken over, and why."""

    version: int
    digest: str
    reason: str


class SwapFailed(RuntimeError):
    """No confirmed weights are in the engine; the replica must not serve."""


class Swapper:
    """Takes one engine from policy to policy; `current` is the one confirmed in the engine.

    `verify(policy)` returns the size of the weights in bytes and raises UserError, OSError or ValueError for a snapshot
    that must not be loaded; it runs in a thread. `drain_s` bounds the draining of mode wait, `call_s` each call to the
    engine. Weights whose parity is above `parity_limit` (nats; None: no limit) do not stay.
    """

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        verify: Callable[[Policy], int],
        *,
        drain_s: float,
        call_s: float = CALL_S,
        parity_limit: float | None = None,
    ) -> None:
        self._engine, self._gate, self._verify = engine, gate, verify
        self._drain_s, self._call_s, self._parity_limit = drain_s, call_s, parity_limit
        self._lock = asyncio.Lock()
        self.current: Policy | None = None
        self.swaps = self.refusals = 0
        self.last_refusal: Refusal | None = None
        self.broken: str | None = None  # why the engine holds no confirmed weights
        self._parity: float | None = None
        self._bytes: int | None = None
        self._drained: bool | None = None
        self._seconds: dict[str, float] = {}  # of the last swap: verify, drain, pause, swap

    async def adopt(self, policy: Policy) -> None:
        """Confirms the weights the engine was started with. SwapFailed when they are not those of `policy`."""
        if not await self._accepted(policy):
            raise SwapFailed(self._reason(policy))
        await self._confirm(policy)
        self.current = policy
        self._gate.open(policy.fingerprint)

    async def to(self, policy: Policy) -> None:
        """Swaps to `policy`. A refused one leaves the old weights serving; without old ones it is SwapFailed."""
        async with self._lock:
            if policy.same_weights(self.current):
                return
            start = time.monotonic()
            if await self._accepted(policy):
                try:
                    await self._exchange(policy)
                except Exception as error:
                    self.broken = str(error) or type(error).__name__
                    self._gate.fail(self.broken)
                    raise
                self._seconds["swap"] = time.monotonic() - start
        if self.current is None:
            raise SwapFailed(self._reason(policy))

    async def _accepted(self, policy: Policy) -> bool:
        start = time.monotonic()
        try:
            self._bytes = await asyncio.to_thread(self._verify, policy)
        except (UserError, OSError, ValueError) as error:
            self._refuse(policy, str(error))
            return False
        self._seconds["verify"] = time.monotonic() - start
        return True

    async def _exchange(self, policy: Policy) -> None:
        start = time.monotonic()
        drain_s = self._drain_s if policy.mode == "wait" else 0
        self._drained = await self._gate.close(drain_s, policy.fingerprint)
        paused = time.monotonic()
        self._seconds["drain"] = paused - start
        mode = "wait" if self._drained else "keep"
        try:
            await self._install(policy, mode)
        except Exception as error:  # noqa: BLE001 - whatever went wrong in the engine: counted, and undone
            self._refuse(policy, f"loading failed: {error}")
            await self._restore(error, mode)
        else:
            self.swaps += 1
            self.current = policy
        self._gate.open(self.current.fingerprint)
        self._seconds["pause"] = time.monotonic() - paused

    async def _install(self, policy: Policy, mode: str) -> None:
        await self._call(self._engine.pause(mode), "pause")
        loaded = await self._call(self._engine.load(policy), "load")
        if loaded != policy.digest:
            raise SwapFailed(f"the engine holds {loaded} after loading {policy.digest}")
        self._gate.note(policy.fingerprint)  # what still runs goes on with these weights
        await self._call(self._engine.resume(), "resume")
        await self._confirm(policy)

    async def _confirm(self, policy: Policy) -> None:
        """The engine computes what whoever made the snapshot computed."""
        self._parity = await self._call(self._engine.parity(policy), "parity")
        limit = self._parity_limit
        if limit is not None and self._parity is not None and not self._parity <= limit:
            raise SwapFailed(
                f"the engine's log-probs differ by {self._parity:.2g} nats on average from those that came with "
                f"version {policy.version}; at most {limit:g} is allowed"
            )

    async def _restore(self, cause: Exception, mode: str) -> None:
        """Loads the old weights again; SwapFailed (the gate stays closed) when there are none or it fails too."""
        if self.current is None:
            raise SwapFailed(f"no weights could be loaded: {cause}") from cause
        try:
            await self._install(self.current, mode)
        except Exception as error:
            raise SwapFailed(f"after {cause} the old weights could not be loaded either: {error}") from error

    async def _call(self, call: Awaitable[T], what: str) -> T:
        try:
            return await asyncio.wait_for(call, self._call_s)
        except TimeoutError:
            raise SwapFailed(f"the engine did not finish '{what}' within {self._call_s:.0f} s") from None

    def _refuse(self, policy: Policy, reason: str) -> None:
        self.refusals += 1
        self.last_refusal = Refusal(policy.version, policy.digest, reason)

    def refuse_config(self, config: object, reason: str) -> None:
        """Notes a request that names no policy; SwapFailed when there is nothing else to serve."""
        named = config if isinstance(config, dict) else {}
        self.refusals += 1
        self.last_refusal = Refusal(named.get("version", -1), str(named.get("digest", "")), reason)
        if self.current is None:
            raise SwapFailed(reason)

    def _reason(self, policy: Policy) -> str:
        why = self.last_refusal.reason if self.last_refusal else "unknown"
        return f"version {policy.version} ({policy.folder}) was refused: {why}"

    def state(self) -> dict[str, object]:
        """What the status route shows of this replica's weights."""
        current = self.current
        return {
            "version": current.version if current else None,
            "digest": current.digest if current else None,
            "parity": self._parity,
            "swaps": self.swaps,
            **{f"{name}_seconds": self._seconds.get(name) for name in ("swap", "verify", "drain", "pause")},
            "bytes": self._bytes,
            "drained": self._drained,
            "refusals": self.refusals,
            "last_refusal": asdict(self.last_refusal) if self.last_refusal else None,
            "inside": self._gate.inside,
            "waiting": self._gate.waiting,
            "mixed": self._gate.mixed,
        }
