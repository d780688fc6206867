"""The order of a weight swap, apart from what carries it out::

verify the snapshot   refused: nothing was touched, the old weights go on serving
close the gate        mode wait: drain up to a deadline; past it, or in mode keep, running requests go on
pause the engine
load                  failed: the old weights are loaded again
compare digests
resume, open the gate
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

from pipeline.config import UserError
from serve.gate import Gate
from serve.policy import Policy


class Engine(Protocol):
    """What a swap needs of an engine."""

    async def pause(self, mode: str) -> None: ...

    async def load(self, policy: Policy) -> str:
        """Loads the weights and returns the digest of what was loaded."""
        ...

    async def resume(self) -> None: ...


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

    `verify(policy)` raises UserError, OSError or ValueError for a snapshot that must not be loaded; it runs in a
    thread. `drain_s` bounds the draining of mode wait, `load_s` each call to the engine.
    """

    def __init__(
        self, engine: Engine, gate: Gate, verify: Callable[[Policy], None], *, drain_s: float, load_s: float = 300
    ) -> None:
        self._engine, self._gate, self._verify = engine, gate, verify
        self._drain_s, self._load_s = drain_s, load_s
        self._lock = asyncio.Lock()
        self.current: Policy | None = None
        self.swaps = self.refusals = 0
        self.last_refusal: Refusal | None = None
        self.broken: str | None = None  # why the engine holds no confirmed weights
        self.last_seconds: float | None = None
        self.last_drained: bool | None = None

    async def adopt(self, policy: Policy) -> None:
        """Confirms the weights the engine was started with. SwapFailed when they are not those of `policy`."""
        if not await self._accepted(policy):
            raise SwapFailed(self._reason(policy))
        self._take(policy)

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
                    raise
                self.last_seconds = time.monotonic() - start
        if self.current is None:
            raise SwapFailed(self._reason(policy))

    async def _accepted(self, policy: Policy) -> bool:
        try:
            await asyncio.to_thread(self._verify, policy)
        except (UserError, OSError, ValueError) as error:
            self._refuse(policy, str(error))
            return False
        return True

    async def _exchange(self, policy: Policy) -> None:
        drained = await self._gate.close(self._drain_s if policy.mode == "wait" else 0)
        self.last_drained = drained
        await self._call(self._engine.pause("wait" if drained else "keep"), "pause")
        try:
            await self._load(policy)
        except Exception as error:  # noqa: BLE001 - whatever went wrong in the engine: counted, and undone
            self._refuse(policy, f"loading failed: {error}")
            await self._restore(error)
        else:
            self.swaps += 1
            self.current = policy
        await self._call(self._engine.resume(), "resume")
        self._gate.open(self.current.fingerprint)

    async def _load(self, policy: Policy) -> None:
        loaded = await self._call(self._engine.load(policy), "load")
        if loaded != policy.digest:
            raise SwapFailed(f"the engine holds {loaded} after loading {policy.digest}")

    async def _restore(self, cause: Exception) -> None:
        """Loads the old weights again; SwapFailed (the gate stays closed) when there are none or it fails too."""
        if self.current is None:
            raise SwapFailed(f"no weights could be loaded: {cause}") from cause
        try:
            await self._load(self.current)
        except Exception as error:
            raise SwapFailed(f"after {cause} the old weights could not be loaded either: {error}") from error

    async def _call(self, call: object, what: str) -> str | None:
        try:
            return await asyncio.wait_for(call, self._load_s)
        except TimeoutError:
            raise SwapFailed(f"the engine did not finish '{what}' within {self._load_s:.0f} s") from None

    def _take(self, policy: Policy) -> None:
        self.current = policy
        self._gate.open(policy.fingerprint)

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
            "swaps": self.swaps,
            "swap_seconds": self.last_seconds,
            "drained": self.last_drained,
            "refusals": self.refusals,
            "last_refusal": asdict(self.last_refusal) if self.last_refusal else None,
            "inside": self._gate.inside,
            "waiting": self._gate.waiting,
            "mixed": self._gate.mixed,
        }
