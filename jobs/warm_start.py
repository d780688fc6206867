"""Teach the tiny overthinking model: `python -m jobs.warm_start --config infra/presets/warm_start.yaml`.

Builds the tokenizer and an untrained model, then teaches it demonstrations that solve and overthink. The model ends in
the run's folder under `model`; with the same run.name an interrupted run goes on.
"""

import argparse
import json
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jobs._cli import run_command
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Teaches and writes the model; 0 when it got there."""
    cfg = named(cfg, args.config)
    if {source.kind for source in cfg.problems.train} != {"tiny"}:
        raise UserError("the warm start teaches the tiny world alone; give problems.train sources of kind tiny")
    folder = run_folder(cfg)
    with held(folder), cluster(namespace=str(cfg.run.name)):
        base = _base(cfg, folder / "base")
        _teach(cfg, folder, str(base))
    print(f"taught model: {folder / 'model'}")
    return 0


def _base(cfg: RunConfig, folder: Path) -> Path:
    """A model folder without weights: shape and tokenizer."""
    from transformers import LlamaConfig

    from pipeline.problems.tiny_tokenizer import build_tokenizer

    plan, tokenizer = cfg.warm_start, build_tokenizer()
    if plan.hidden % plan.heads or plan.hidden // plan.heads % 32:
        raise UserError(
            f"warm_start.hidden={plan.hidden} over warm_start.heads={plan.heads} gives heads of "
            f"{plan.hidden / plan.heads:g}; attention on CPU needs a multiple of 32"
        )
    tokenizer.save_pretrained(folder)
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=plan.hidden,
        intermediate_size=plan.intermediate,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.heads,
        head_dim=plan.hidden // plan.heads,
        max_position_embeddings=cfg.engine.max_model_len,
        initializer_range=0.05,
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)
    settings = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


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


def _teach(cfg: RunConfig, folder: Path, base: str) -> None:
    import ray

    from pipeline.learner.supervised import fit_supervised
    from pipeline.tracking import Tracker, tracking_uri

    tracker = ray.remote(Tracker).options(name="tracker", num_cpus=0).remote(
        tracking_uri(cfg), cfg.tracking.experiment, cfg.tracking.registered_model
    )
    started = tracker.start.remote(cfg.run.name, cfg.model_dump(mode="json"), {"kind": "warm_start"})
    run_id = ray.get(started, timeout=120)
    status = "FAILED"
    try:
        print(f"run {cfg.run.name} in {folder}; MLflow run {run_id}", flush=True)
        with _progress(cfg, tracker):
            fit_supervised(cfg, folder, base, make_draw, str(ray.get_runtime_context().namespace))
        status = "FINISHED"
    finally:
        ray.get(tracker.finish.remote(status), timeout=60)


@contextmanager
def _progress(cfg: RunConfig, tracker: Any) -> Iterator[None]:
    """A bar with the loss of the last logged step, for as long as the block runs."""
    import ray

    stopping = threading.Event()

    def poll() -> None:
        bar: tqdm | None = None
        while not stopping.wait(5):
            losses = ray.get(tracker.history.remote(), timeout=60).get("warm_start/loss")
            if not losses:
                continue
            last = max(losses)
            bar = bar or tqdm(total=cfg.warm_start.steps, initial=last, unit="step", mininterval=10)
            bar.set_postfix(loss=f"{losses[last]:.4f}", refresh=False)
            bar.update(last - bar.n)

    thread = threading.Thread(target=poll, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(timeout=70)


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
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
