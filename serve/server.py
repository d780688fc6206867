"""The Serve deployment: Ray's LLM server behind a gate, with weights that `reconfigure` swaps in place."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve._private.logging_utils import get_serve_logs_dir
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from pipeline.config import UserError
from pipeline.weights import WEIGHTS_NAME, verify
from serve.access import AccessSettings
from serve.access.log import LogFile
from serve.asgi import App
from serve.endpoint_app import EndpointApp
from serve.engine_config import effective_engine
from serve.engine_routes import take_parsed_bodies, trim
from serve.engine_weights import EngineWeights
from serve.gate import Gate
from serve.kv_tier.replica_side import TierFolder
from serve.node_only import bind_to_node
from serve.policy import Policy, wanted_from
from serve.replica_states import ReplicaStates
from serve.short_path import ShortPath, give_short_path
from serve.short_prompts import render_short_at_once
from serve.swap import CALL_S, SwapFailed, Swapper
from serve.tally import Tally


class HotSwapServer(LLMServer):
    """One replica. Serve calls `reconfigure` at start (so a new replica comes up on the current version) and whenever
    `user_config` changes; requests reach the engine only while confirmed weights are in it.

    `drain_s` bounds the draining of a swap; `parity_limit` (nats) is how far the engine may be from the log-probs that
    a snapshot brings along, None: it is shown but not held against it.
    """

    async def __init__(
        self, llm_config: LLMConfig, *, drain_s: float = 60.0, parity_limit: float | None = None, **options: Any
    ) -> None:
        from serve.reasoning_count import count_unopened_thinking

        self._short_path = ShortPath()
        bind_to_node()
        give_short_path(self._short_path)
        count_unopened_thinking()
        self._started_with = llm_config.model_loading_config.model_source
        self._asked = dict(llm_config.engine_kwargs)
        self.tiers = TierFolder(self._asked)
        llm_config.update_engine_kwargs(**self.tiers.engine_kwargs)
        self._rank = 0
        self._is_canary, self._access_digest = False, ""
        self.gate, self.tally = Gate(longest_wait_s=drain_s + 2 * CALL_S), Tally()
        self.access: AccessSettings | None = None  # until the first reconfigure: the HTTP port opens before it
        self._app: EndpointApp | None = None
        self._weights = EngineWeights(self)
        self._swapper = Swapper(self._weights, self.gate, self._verify, drain_s=drain_s, parity_limit=parity_limit)
        await super().__init__(llm_config, **options)

    def _get_default_engine_class(self) -> type:
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0":
            from serve.engine import SingleProcessEngine

            return SingleProcessEngine
        return super()._get_default_engine_class()

    async def __serve_build_asgi_app__(self) -> App:
        """What answers HTTP in this replica: vLLM's own routes and ours, behind access and gate."""
        native = await super().__serve_build_asgi_app__()
        for model in native.state.openai_serving_models.base_model_paths:
            model.model_path = model.name  # the `root` of /v1/models: a path is nobody's business
        trim(native)
        take_parsed_bodies(native)
        render_short_at_once(self.engine._engine_client.renderer)
        replica = serve.get_replica_context().replica_id.unique_id
        self._app = EndpointApp(
            native,
            self.gate,
            self.tally,
            self.access,
            readiness=self.readiness,
            states=ReplicaStates(),
            effective=self.effective_config,
            log=LogFile(Path(get_serve_logs_dir()) / f"access_{replica}.log").add,
        )
        logging.getLogger("serve").setLevel(logging.INFO)  # vLLM's app sets the root logger to ERROR
        return self._app

    def _verify(self, policy: Policy) -> int:
        """Every byte and value of the snapshot, against its manifest and the model the engine was started with.
        Returns the size of the weights in bytes."""
        manifest = verify(policy.folder, expect=policy.digest, base=self._started_with)
        if manifest.version != policy.version:
            raise UserError(f"{policy.folder} holds version {manifest.version}, not {policy.version}")
        return (Path(policy.folder) / WEIGHTS_NAME).stat().st_size

    async def reconfigure(self, user_config: dict[str, object], rank: Any = None) -> None:
        """Serves what `user_config` asks a replica of this rank for. A refused policy leaves the old weights serving
        and shows in `policy_status`; a replica that has no confirmed weights yet fails instead."""
        self._rank = getattr(rank, "rank", rank) or 0
        try:
            wanted = wanted_from(user_config)
            access = AccessSettings.from_config(wanted.access or {})
        except UserError as error:
            self._swapper.refuse_config(user_config, str(error))
            return
        self.access, self._access_digest = access, wanted.access_digest
        if self._app:
            self._app.access.update(access)
        policy = wanted.for_rank(self._rank)
        self._is_canary = policy is not wanted.policy
        if self._swapper.current is None and policy.folder == self._started_with:
            await self._weights.turn_tiers_to(policy.digest)
            await self._swapper.adopt(policy)
        else:
            await self._swapper.to(policy)

    async def check_health(self) -> None:
        """Unhealthy (Serve then replaces the replica) once a swap left the engine without confirmed weights."""
        if self._swapper.broken:
            raise SwapFailed(self._swapper.broken)
        await super().check_health()

    async def readiness(self, deadline_s: float) -> str | None:
        """Why this replica is not ready, None when it is: healthy, on confirmed weights, and its engine computes a
        token within `deadline_s` (while a swap holds the engine, requests wait and are not lost: ready)."""
        from serve.engine import next_token

        if self._swapper.current is None:
            return self._swapper.broken or "no weights are confirmed yet"
        try:
            await self.check_health()
            if self.gate.is_open:
                await asyncio.wait_for(next_token(self.engine), deadline_s)
        except TimeoutError:
            return f"the engine computed no token within {deadline_s:g} s" if self.gate.is_open else None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return str(error) or type(error).__name__
        return None

    async def policy_status(self) -> dict[str, object]:
        """The version and digest in this replica's engine, how its last swaps went and what it has answered."""
        return {
            "replica": serve.get_replica_context().replica_id.unique_id,
            "rank": self._rank,
            "pid": os.getpid(),
            "canary": self._is_canary,
            "access": self._access_digest,
            **self._swapper.state(),
            "short_path": self._short_path.taken,
            "served": self.tally.state(),
        }

    def effective_config(self) -> dict[str, Any]:
        """The engine arguments that this replica was started with (`requested`) beside what its engine runs with."""
        client = self.engine._engine_client
        found = effective_engine(client.vllm_config, self.engine._vllm_args, client.log_stats)
        replica = serve.get_replica_context().replica_id.unique_id
        told = {"replica": replica, "requested": self._asked, "effective": found}
        counters = self.tiers.counters()
        return told | ({"kv_tiers": counters} if counters else {})
