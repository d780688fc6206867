"""The rollout engine as a Ray actor: a plain class, wrapped by whoever places it."""

from pipeline.config.schema import Engine
from pipeline.engine.effective import EffectiveOptions
from pipeline.engine.options import EngineOptions
from pipeline.engine.requests import GenerateRequest, SwapReceipt
from pipeline.engine.rollout import RolloutEngine, SwapMode
from pipeline.traces import Group


class RolloutActor:
    """One engine in one process. Wrap with `ray.remote(max_concurrency=...)` and start it with
    `engine_env(options)` as `env_vars`; at least as many calls must run at once as there are generate calls in
    flight, plus two for swaps and pings."""

    def __init__(self, name: str) -> None:
        self._engine = RolloutEngine(name)

    async def start(
        self,
        model_dir: str,
        engine: EngineOptions | Engine,
        version: int = 0,
        digest: str = "",
        deadline_s: float = 300,
    ) -> EffectiveOptions:
        """See `RolloutEngine.start`; also takes the `engine` section of a run."""
        options = engine if isinstance(engine, EngineOptions) else EngineOptions.from_config(engine)
        return await self._engine.start(model_dir, options, version, digest, deadline_s)

    async def generate(self, requests: list[GenerateRequest], deadline_s: float | None = None) -> list[Group]:
        """See `RolloutEngine.generate`."""
        return await self._engine.generate(requests, deadline_s)

    async def swap(
        self, folder: str, version: int, digest: str, mode: SwapMode = "keep", allow_older: bool = False
    ) -> SwapReceipt:
        """See `RolloutEngine.swap`."""
        return await self._engine.swap(folder, version, digest, mode, allow_older)

    async def score(self, prompt_ids: list[int], token_ids: list[int]) -> list[float]:
        """See `RolloutEngine.score`."""
        return await self._engine.score(prompt_ids, token_ids)

    async def fingerprint(self, token_ids: list[int]) -> list[float]:
        """See `RolloutEngine.fingerprint`."""
        return await self._engine.fingerprint(token_ids)

    async def ping(self) -> dict[str, object]:
        """See `RolloutEngine.ping`."""
        return await self._engine.ping()

    async def shutdown(self) -> None:
        """See `RolloutEngine.shutdown`."""
        await self._engine.shutdown()
