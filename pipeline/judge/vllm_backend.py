"""Runs a judge on a vLLM engine of its own: one token a prompt, what segments of a trace share computed once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.schema import Engine
from pipeline.config.schema import Judge as JudgeConfig
from pipeline.engine import EngineOptions, RolloutEngine
from pipeline.engine.options import installed_build


def judge_engine_options(config: JudgeConfig) -> EngineOptions:
    """The engine a judge needs: room for judge.max_tokens and the verdict; float32 on a CPU."""
    on_cpu = installed_build() == "cpu"
    device = (
        {"dtype": "float32"}
        if on_cpu
        else {"dtype": "bfloat16", "kv_cache_bytes": None, "gpu_memory_utilization": config.gpu_memory_utilization}
    )
    return EngineOptions.from_config(Engine(max_model_len=config.max_tokens + 1, max_num_seqs=256, **device))


class VllmBackend:
    """The model in `folder` behind a `RolloutEngine`. Calls may come from any thread, one at a time."""

    def __init__(self, folder: Path, config: JudgeConfig) -> None:
        self._options, self._deadline_s = judge_engine_options(config), config.deadline_s
        self._engine = RolloutEngine("judge")
        asyncio.run(self._engine.start(folder, self._options))

    def describe(self) -> dict[str, str]:
        """Where and in which dtype."""
        return {"device": self._options.device, "dtype": self._options.dtype, "prefix_caching": "on"}

    def probabilities(self, prompts: Sequence[Sequence[int]], choices: tuple[int, int]) -> list[float]:
        """For each prompt the probability of the second choice as next token, against the first."""
        found = asyncio.run(self._engine.choose(prompts, choices, self._deadline_s))
        return [shares[1] for shares in found]

    def close(self) -> None:
        """Ends the engine."""
        asyncio.run(self._engine.shutdown())
