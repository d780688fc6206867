"""Teach the tiny overthinking model: `python -m jobs.warm_start --config infra/presets/warm_start.yaml`.

Builds the tokenizer and an untrained model, then teaches it demonstrations that solve and overthink. The model ends in
the run's folder under `model`; with the same run.name an interrupted run goes on.
"""

import argparse
import random
import sys
from typing import Any

from jobs._cli import run_command
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from jobs._teaching import empty_model, teach, tracked
from pipeline.config import RunConfig, UserError
from pipeline.problems import check_sources


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Teaches and writes the model; 0 when it got there."""
    cfg = named(cfg, args.config)
    _check(cfg)
    from pipeline.problems.tiny_tokenizer import build_tokenizer

    folder = run_folder(cfg)
    with held(folder), cluster(namespace=str(cfg.run.name)):
        with tracked(cfg, folder, "warm_start", cfg.tracking.registered_model) as tracker:
            base = empty_model(build_tokenizer(), cfg.warm_start, cfg.engine.max_model_len, folder / "base")
            teach(cfg, cfg.warm_start, folder, base, make_draw, tracker)
    print(f"taught model: {folder / 'model'}")
    return 0


def _check(cfg: RunConfig) -> None:
    if {source.kind for source in cfg.problems.train} != {"tiny"}:
        raise UserError("the warm start teaches the tiny world alone; give problems.train sources of kind tiny")
    check_sources(cfg.problems.train)


def make_draw(cfg: RunConfig) -> Any:
    """Draws a random lesson (prompt ids, response ids) of the config's problems; runs in each rank."""
    from pipeline.problems import load_problems, with_suffix
    from pipeline.problems.tiny_lessons import PLAIN, Overthinking, demonstrate
    from pipeline.problems.tiny_tokenizer import build_tokenizer

    tokenizer, problems = build_tokenizer(), load_problems(cfg.problems.train, cfg.run.seed)
    plan, longest = cfg.warm_start, cfg.engine.max_model_len
    how = Overthinking(plan.slip, (plan.min_checks, plan.max_checks))

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    def draw(rng: random.Random, plain: bool) -> tuple[list[int], list[int]]:
        while True:
            problem = rng.choice(problems)
            messages = [{"role": "user", "content": with_suffix(problem.prompt, cfg.problems.prompt_suffix)}]
            prompt = encode(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
            response = encode(demonstrate(problem, PLAIN if plain else how, rng) + tokenizer.eos_token)
            if len(prompt) + len(response) <= longest:
                return prompt, response

    return draw


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    _check(cfg)
    plan = cfg.warm_start
    sources = ", ".join(f"{source.size} {source.name}" for source in cfg.problems.train)
    return (
        f"{cfg.learner.ranks} learner ranks: {plan.steps} supervised steps, the first {plan.plain_steps} of "
        f"{plan.plain_tokens_per_step} tokens, the others of {plan.tokens_per_step}\n"
        f"problems: {sources}\n"
        f"a Llama of {plan.layers} layers, hidden {plan.hidden}"
    )


if __name__ == "__main__":
    sys.exit(run_command("warm_start", __doc__, main, plan=_plan))
