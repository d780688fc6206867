"""The Serve deployment: Ray's LLM server behind a gate, with weights that `reconfigure` swaps in place."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from ray import serve
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from pipeline.config import UserError
from pipeline.weights import verify
from serve.gate import Gate
from serve.policy import Policy, policy_from, stamp_chunk
from serve.swap import SwapFailed, Swapper

LOAD_METHOD = "load_snapshot"  # of the worker extension; returns the identity of what it loaded


class HotSwapServer(LLMServer):
    """One replica. Serve calls `reconfigure` at start (so a new replica comes up on the current version) and whenever
    `user_config` changes; requests reach the engine only while confirmed weights are in it."""

    async def __init__(self, llm_config: LLMConfig, *, drain_s: float = 60.0, **options: Any) -> None:
        self._started_with = llm_config.model_loading_config.model_source
        self._gate = Gate()
        self._swapper = Swapper(EngineWeights(self), self._gate, self._verify, drain_s=drain_s)
        await super().__init__(llm_config, **options)

    def _get_default_engine_class(self) -> type:
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0":
            from serve.engine import SingleProcessEngine

            return SingleProcessEngine
        return super()._get_default_engine_class()

    def _verify(self, policy: Policy) -> None:
        """Every byte and value of the snapshot, against its manifest and the model the engine was started with."""
        manifest = verify(policy.folder, expect=policy.digest, base=self._started_with)
        if manifest.version != policy.version:
            raise UserError(f"{policy.folder} holds version {manifest.version}, not {policy.version}")

    async def reconfigure(self, user_config: dict[str, object]) -> None:
        """Serves the policy `user_config` names. A refused one leaves the old weights serving and shows in
        `policy_status`; a replica that has no confirmed weights yet fails instead."""
        try:
            policy = policy_from(user_config)
        except UserError as error:
            self._swapper.refuse_config(user_config, str(error))
            return
        if self._swapper.current is None and policy.folder == self._started_with:
            await self._swapper.adopt(policy)
        else:
            await self._swapper.to(policy)

    async def check_health(self) -> None:
        """Unhealthy (Serve then replaces the replica) once a swap left the engine without confirmed weights."""
        if self._swapper.broken:
            raise SwapFailed(self._swapper.broken)
        await super().check_health()

    async def policy_status(self) -> dict[str, object]:
        """The version and digest in this replica's engine, and how its last swaps went."""
        return {"replica": serve.get_replica_context().replica_id.unique_id, **self._swapper.state()}

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncGenerator[Any, None]:
        return self._gated(lambda: LLMServer.chat(self, request, raw_request_info))

    async def completions(self, request: Any, raw_request_info: Any = None) -> AsyncGenerator[Any, None]:
        return self._gated(lambda: LLMServer.completions(self, request, raw_request_info))

    async def _gated(self, begin: Callable[[], Awaitable[AsyncGenerator[Any, None]]]) -> AsyncGenerator[Any, None]:
        """Runs a request inside the gate and stamps every piece of its reply."""
        async with self._gate.admit() as admission:
            async with aclosing(await begin()) as items:
                async for item in items:
                    yield _stamped(item, admission.fingerprint)


class EngineWeights:
    """The replica's engine as a swap sees it."""

    def __init__(self, server: HotSwapServer) -> None:
        self._server = server

    async def pause(self, mode: str) -> None:
        await self._server.pause(mode=mode, clear_cache=True)

    async def load(self, policy: Policy) -> str:
        """The digest that all workers of the engine loaded; RuntimeError when they differ."""
        asked = (policy.folder, policy.version, policy.digest)
        loaded = await self._server.collective_rpc(LOAD_METHOD, args=asked)
        await self._server.reset_prefix_cache()
        digests = {entry["digest"] if entry else None for entry in loaded}
        if len(digests) != 1:
            raise RuntimeError(f"the engine's workers loaded different weights: {digests}")
        return digests.pop()

    async def resume(self) -> None:
        await self._server.resume()


def _stamped(item: Any, mark: str) -> Any:
    if isinstance(item, list):
        return [_stamped(part, mark) for part in item]
    if isinstance(item, str):
        return stamp_chunk(item, mark)
    if hasattr(item, "system_fingerprint"):
        item.system_fingerprint = mark
    return item
