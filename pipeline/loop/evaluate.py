"""Samples held-out problems on one rollout engine of its own."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import ray

from pipeline.config import RunConfig
from pipeline.engine import GenerateRequest, engine_env
from pipeline.engine.actor import RolloutActor
from pipeline.engine.options import EngineOptions
from pipeline.loop.collect import Prompts
from pipeline.problems import Problem, sample_seed
from pipeline.traces import Trace

CHUNKS = 10


def sample(
    cfg: RunConfig, folder: str, tokenizer: Any, problems: Sequence[Problem], on_done: Callable[[int], object]
) -> list[Trace]:
    """`evaluation.samples` traces a problem, under the weights in `folder`. Ray must be connected."""
    options = EngineOptions.from_config(cfg.engine)
    rollout = cfg.rollout
    actor = (
        ray.remote(RolloutActor)
        .options(
            num_cpus=rollout.cpus_per_engine,
            num_gpus=rollout.gpus_per_engine,
            max_concurrency=8,
            runtime_env={"env_vars": engine_env(options)},
        )
        .remote("evaluation")
    )
    prompts = Prompts(tokenizer, cfg.problems.prompt_suffix, cfg.engine.max_model_len - rollout.max_new_tokens)
    try:
        ray.get(actor.start.remote(folder, options), timeout=cfg.loop.start_deadline_s)
        traces: list[Trace] = []
        size = math.ceil(len(problems) / CHUNKS)
        for start in range(0, len(problems), size):
            requests = [_request(cfg, prompts, problem) for problem in problems[start : start + size]]
            groups = ray.get(actor.generate.remote(requests), timeout=rollout.deadline_s)
            traces += [trace for group in groups for trace in group.traces]
            on_done(len(requests) * cfg.evaluation.samples)
        return traces
    finally:
        ray.kill(actor)


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
