"""Samples held-out problems on one rollout engine of its own."""

import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import ray

from pipeline.config import RunConfig
from pipeline.engine import GenerateRequest, engine_env
from pipeline.engine.actor import RolloutActor
from pipeline.engine.options import EngineOptions
from pipeline.loop.collect import Prompts
from pipeline.problems import Problem, sample_seed
from pipeline.traces import Trace

CHUNKS = 10  # of a split, so that its progress shows


class EvaluationEngine:
    """One engine, started on `folder`; a context manager. Weights are swapped rather than the engine started anew.

    Ray must be connected. `cpus` None: rollout.cpus_per_engine; 0 for one that rests while a training runs.
    """

    def __init__(self, cfg: RunConfig, folder: str, cpus: float | None = None) -> None:
        self.cfg = cfg
        options = EngineOptions.from_config(cfg.engine)
        self._actor = (
            ray.remote(RolloutActor)
            .options(
                num_cpus=cfg.rollout.cpus_per_engine if cpus is None else cpus,
                num_gpus=cfg.rollout.gpus_per_engine,
                max_concurrency=CHUNKS + 2,
                runtime_env={"env_vars": engine_env(options)},
            )
            .remote("evaluation")
        )
        try:
            ray.get(self._actor.start.remote(folder, options), timeout=cfg.loop.start_deadline_s)
        except BaseException:
            self.end()
            raise

    def swap(self, folder: str, version: int, digest: str) -> None:
        """Answers with the weights of a snapshot from now on; raises unless the engine echoes their identity."""
        order = self._actor.swap.remote(folder, version, digest, "keep", True)
        receipt = ray.get(order, timeout=self.cfg.engine.swap_deadline_s + 30)
        if (receipt.version, receipt.digest) != (version, digest):
            raise RuntimeError(f"the evaluation engine answers with {receipt.digest[:12]}, not {digest[:12]}")

    def sample(
        self, cfg: RunConfig, tokenizer: Any, problems: Sequence[Problem], on_done: Callable[[int], object]
    ) -> list[Trace]:
        """`evaluation.samples` traces a problem under the present weights, seeded by `run.seed` of `cfg`."""
        room = cfg.engine.max_model_len - cfg.rollout.max_new_tokens
        prompts = Prompts(tokenizer, cfg.problems.prompt_suffix, room)
        requests = [_request(cfg, prompts, problem) for problem in problems]
        size = math.ceil(len(requests) / CHUNKS)
        chunks = [requests[start : start + size] for start in range(0, len(requests), size)]
        asked = [self._actor.generate.remote(chunk) for chunk in chunks]  # all at once: the engine batches them
        traces: list[Trace] = []
        for chunk, reply in zip(chunks, asked, strict=True):
            traces += [trace for group in ray.get(reply, timeout=cfg.rollout.deadline_s) for trace in group.traces]
            on_done(len(chunk) * cfg.evaluation.samples)
        return traces

    def end(self) -> None:
        """Ends the engine's process; harmless when repeated."""
        ray.kill(self._actor)

    def __enter__(self) -> "EvaluationEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def sample(
    cfg: RunConfig, folder: str, tokenizer: Any, problems: Sequence[Problem], on_done: Callable[[int], object]
) -> list[Trace]:
    """`evaluation.samples` traces a problem, under the weights in `folder`. Ray must be connected."""
    with EvaluationEngine(cfg, folder) as engine:
        return engine.sample(cfg, tokenizer, problems, on_done)


def _request(cfg: RunConfig, prompts: Prompts, problem: Problem) -> GenerateRequest:
    return GenerateRequest(
        issue_id=problem.id,
        problem_id=problem.id,
        prompt_ids=tuple(prompts.ids(problem)),
        n=cfg.evaluation.samples,
        seed=sample_seed(problem.id, 0, cfg.run.seed),
        temperature=cfg.evaluation.temperature,
        top_p=cfg.evaluation.top_p,
        max_new_tokens=cfg.rollout.max_new_tokens,
    )
