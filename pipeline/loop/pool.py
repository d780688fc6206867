"""The rollout engines as one: spreads requests, swaps weights in all of them, and names the one that fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pipeline.config import user_error_in
from pipeline.engine import GenerateRequest, SwapReceipt
from pipeline.loop.waiting import Waits
from pipeline.traces import Group

T = TypeVar("T")


class EngineFailed(RuntimeError):
    """One rollout engine failed; the text says which, in what, and why."""


def spread(requests: Sequence[GenerateRequest], engines: int) -> list[list[GenerateRequest]]:
    """Requests dealt round robin: `[engine]`, some empty when there are fewer requests than engines."""
    return [list(requests[engine::engines]) for engine in range(engines)]


class RolloutPool:
    """Handles to the rollout actors of one run. Seeds belong to requests, so the dealing changes no sample."""

    def __init__(self, actors: Sequence[Any], waits: Waits, deadline_s: float) -> None:
        self.actors, self.waits, self.deadline_s = list(actors), waits, deadline_s

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Group]:
        """One group a request, in the order of the requests."""
        shares = spread(requests, len(self.actors))
        replies = await self._each(
            "generate", lambda actor, index: actor.generate.remote(shares[index]), skip=[not share for share in shares]
        )
        groups = {group.issue_id: group for reply in replies for group in reply}
        missing = [request.issue_id for request in requests if request.issue_id not in groups]
        if missing:
            raise EngineFailed(f"the engines returned no group for {len(missing)} issues, such as {missing[0]}")
        return [groups[request.issue_id] for request in requests]

    async def swap(self, folder: str, version: int, digest: str, mode: str = "keep") -> list[SwapReceipt]:
        """Loads a snapshot in every engine; returns once each has echoed its version and digest."""
        receipts = await self._each(
            f"swap to version {version}", lambda actor, _: actor.swap.remote(folder, version, digest, mode, True)
        )
        for index, receipt in enumerate(receipts):
            if (receipt.version, receipt.digest) != (version, digest):
                raise EngineFailed(
                    f"rollout engine {index} answers version {receipt.version} ({receipt.digest[:8]}) after the swap "
                    f"to version {version} ({digest[:8]})"
                )
        return receipts

    async def fingerprint(self, token_ids: Sequence[int]) -> list[list[float]]:
        """Every engine's log-probs of a fixed sequence's tokens after its first."""
        return await self._each("score", lambda actor, _: actor.fingerprint.remote(list(token_ids)))

    async def start(self, *arguments: object) -> list[Any]:
        """Starts every engine; returns their effective options."""
        return await self._each("start", lambda actor, _: actor.start.remote(*arguments))

    async def _each(
        self, doing: str, call: Callable[[Any, int], Awaitable[T]], skip: Sequence[bool] | None = None
    ) -> list[T]:
        async def one(index: int) -> T:
            what = f"rollout engine {index} to {doing}"
            try:
                return await self.waits.within(what, self.deadline_s, call(self.actors[index], index))
            except Exception as error:
                if mistake := user_error_in(error):
                    raise mistake from None
                raise EngineFailed(f"rollout engine {index} failed to {doing}: {error}") from error

        indices = [i for i in range(len(self.actors)) if not (skip and skip[i])]
        return list(await asyncio.gather(*(one(index) for index in indices)))
