"""The frozen problems that a gate asks every model: which ones, how, and the digest that says so."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pipeline.config import RunConfig, UserError
from pipeline.evaluation.suites import suite_digest
from pipeline.loop.assemble import load_split
from pipeline.loop.collect import Prompts
from pipeline.loop.evaluate import longest_reply, prompts_of
from pipeline.loop.examples import alternating
from pipeline.problems import Problem


def asked_as(cfg: RunConfig) -> RunConfig:
    """`cfg` with the sampling of the gate: `gate.samples` replies a problem."""
    evaluation = cfg.evaluation.model_copy(
        update={"samples": cfg.gate.samples, "max_new_tokens": longest_reply(cfg)},
    )
    return cfg.model_copy(update={"evaluation": evaluation})


def check_frozen(cfg: RunConfig) -> None:
    """UserError where the config has no held-out problems."""
    if not cfg.problems.held_out:
        raise UserError("the gate needs problems.held_out to measure with; add a source to it")


def frozen_problems(cfg: RunConfig, tokenizer: Any) -> list[Problem]:
    """The held-out problems that fit the engine, in turns from each source, `gate.problems` of them at most. Raises as
    `check_frozen` does."""
    check_frozen(cfg)
    prompts: Prompts = prompts_of(cfg, tokenizer)
    problems = alternating(load_split(cfg, "held_out"), key=lambda problem: problem.source)
    return [problem for problem in problems if len(prompts.ids(problem)) <= prompts.max_tokens][: cfg.gate.problems]


def asked_digest(cfg: RunConfig, problems: Sequence[Problem]) -> str:
    """sha256 (hex) over all that verdicts and lengths depend on but for the weights: problems, sampling, grading."""
    options = cfg.evaluation
    parts = {
        "problems": suite_digest(problems, cfg.problems.prompt_suffix),
        "sampling": [cfg.gate.samples, options.temperature, options.top_p, longest_reply(cfg), cfg.run.seed],
        "engine": [cfg.engine.dtype, cfg.engine.max_model_len],
        "think_end": cfg.model.think_end,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
