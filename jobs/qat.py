"""Train a model for INT4 weights: `python -m jobs.qat --config infra/presets/tiny.yaml qat.bits=4`.

An optional stage after the reasoning is learned. Samples answers of model.path to problems.train, then trains it to
give the same answers with its linear layers rounded to the grid of `qat`. The rounded model ends in the run's folder
under `model`, in the compressed-tensors format that vLLM serves; with the same run.name an interrupted run goes on.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jobs._cli import run_command
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError, WarmStart, check_model_folder
from pipeline.problems import check_sources

REPORT = "qat.json"


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Samples, trains, writes and compares; 0 when it got there."""
    from jobs import _qat
    from jobs._teaching import teach, tracked
    from pipeline.learner.qat import qat_function

    cfg = named(cfg, args.config)
    base = _check(cfg)
    folder = run_folder(cfg)
    with held(folder), cluster(namespace=str(cfg.run.name)):
        with tracked(cfg, folder, "qat", cfg.tracking.registered_model) as tracker:
            answers = _qat.sampled(cfg, folder)
            draw = partial(_qat.make_draw, str(answers))
            teach(cfg, teaching_plan(cfg), folder, base, draw, tracker, qat_function)
            report = _qat.compare(cfg, base, folder / "model", answers)
    (folder / REPORT).write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(_text(report, folder / "model"))
    return 0


def _check(cfg: RunConfig) -> Path:
    """The model's folder. UserError for what cannot be trained for, before anything starts."""
    from pipeline.quantization.asked import asked_grid
    from pipeline.quantization.folder import fitting_layers
    from pipeline.quantization.stored import stored_quantisation
    from serve.kv_budget import read_model_config

    grid = asked_grid(cfg)
    if cfg.qat.warmup_steps > cfg.qat.steps:
        raise UserError(
            f"qat.warmup_steps ({cfg.qat.warmup_steps}) is above qat.steps ({cfg.qat.steps}), so the rate is never "
            "reached; lower the first or raise the second"
        )
    if not cfg.problems.train:
        raise UserError("problems.train is empty: there is nothing to sample answers to; give it problems")
    check_sources(cfg.problems.train)
    base = check_model_folder(cfg.model.path)
    config = read_model_config(base / "config.json")
    if stored := stored_quantisation(config):
        raise UserError(f"model.path: {base} holds {stored.name} weights already; give the model they come from")
    if cfg.learner.micro_batch_tokens < cfg.engine.max_model_len:
        raise UserError(
            f"learner.micro_batch_tokens ({cfg.learner.micro_batch_tokens}) cannot hold one answer of "
            f"engine.max_model_len ({cfg.engine.max_model_len}) tokens; raise the first or lower the second"
        )
    fitting_layers(base, grid)
    return base


def teaching_plan(cfg: RunConfig) -> WarmStart:
    """The schedule of the supervised run: one phase, one cosine."""
    plan = cfg.qat
    return WarmStart(
        steps=plan.steps,
        plain_steps=0,
        tokens_per_step=plan.tokens_per_step,
        lr=plan.lr,
        overthink_lr=plan.lr,
        lr_floor=plan.lr_floor,
        warmup_steps=plan.warmup_steps,
        log_every=plan.log_every,
        checkpoint_every=plan.checkpoint_every,
    )


def _text(report: dict[str, Any], model: Path) -> str:
    lines = [f"{report['grid']}: {report['steps']} steps on {report['answers']} answers of the model"]
    for name, told in report["held_out"].items():
        figures = f"KL {told['kl']:.5f} nats a token, loss {told['loss']:.5f}"
        lines.append(f"  {name:<20} {figures} on {told['answers']} others")
    return "\n".join([*lines, f"rounded model: {model} ({report['digest'][:12]})"])


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    _check(cfg)
    plan = cfg.qat
    count = sum(source.size or 0 for source in cfg.problems.train) or "all"
    grouped = f"groups of {plan.group}" if plan.group else "a scale an output"
    return (
        f"one rollout engine: {plan.samples} answers each to {count} training problems\n"
        f"{cfg.learner.ranks} learner ranks: {plan.steps} steps of {plan.tokens_per_step} tokens at {plan.lr:g}, "
        f"weights of {plan.bits} bits, {grouped}"
    )


if __name__ == "__main__":
    sys.exit(run_command("qat", __doc__, main, plan=_plan))
