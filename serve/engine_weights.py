"""The replica's engine as a swap of weights sees it."""

import asyncio
import logging
from typing import Any

from pipeline.weights import read_reference
from serve.policy import Policy

LOAD_METHOD = "load_snapshot"  # of the worker extension; returns the identity of what it loaded
LOADS_WAIT_S = (0.05, 0.2, 1.0)
LOADING = "Failed to reset KV cache"  # so vLLM says that blocks are on their way to a request


class EngineWeights:
    """`server`: the replica, with vLLM's calls and its `tiers` (a `TierFolder`)."""

    def __init__(self, server: Any) -> None:
        self._server = server

    async def pause(self, mode: str) -> None:
        """Stops the engine; what it has cached is dropped. RuntimeError when it cannot.

        With KV cache tiers only the engine's own cache is dropped here: they are reset after the load, once, because
        vLLM's connector bears no second reset before the engine's next step.
        """
        for wait_s in (*LOADS_WAIT_S, None):
            try:
                await self._server.pause(mode=mode, clear_cache=not self._server.tiers.there)
                if self._server.tiers.there:
                    await self._drop(reset_running_requests=True)
                return
            except Exception as error:
                # Such a request cannot be put back into the queue: let it have its blocks first.
                if wait_s is None or LOADING not in str(error):
                    raise
                await self._server.resume()
                await asyncio.sleep(wait_s)

    async def load(self, policy: Policy) -> str:
        """The digest that all workers of the engine loaded; RuntimeError when they differ."""
        asked = (policy.folder, policy.version, policy.digest)
        loaded = await self._server.collective_rpc(LOAD_METHOD, args=asked)
        digests = {entry["digest"] if entry else None for entry in loaded}
        if len(digests) != 1:
            raise RuntimeError(f"the engine's workers loaded different weights: {digests}")
        digest = digests.pop()
        if digest == policy.digest:  # others do not stay
            await self.turn_tiers_to(digest)
        return digest

    async def turn_tiers_to(self, digest: str) -> None:
        """Drops every cached prefix, in the engine and its tiers, whose blocks are from now on of these weights."""
        try:
            await asyncio.to_thread(self._server.tiers.mark, digest)
        except OSError as error:
            logging.getLogger("serve").warning("the KV cache's disk tier is off: %s", error)
        await self._drop(reset_connector=True)

    async def _drop(self, **how: bool) -> None:
        if not await self._server.engine._engine_client.reset_prefix_cache(**how):
            raise RuntimeError("the engine did not drop its prefix cache")

    async def resume(self) -> None:
        await self._server.resume()

    async def parity(self, policy: Policy) -> float | None:
        """Mean |difference| (nats) between the engine's log-probs and those the snapshot brings; None without them."""
        from serve.engine import prompt_logprobs  # and with it vLLM

        reference = await asyncio.to_thread(read_reference, policy.folder)
        if reference is None:
            return None
        return reference.distance(await prompt_logprobs(self._server.engine, reference.token_ids))
