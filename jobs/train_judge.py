"""Teach a judge to find necessary prefixes: `python -m jobs.train_judge --config infra/presets/judge.yaml`.

Samples traces of model.path on problems.train, cuts them into segments, has a labeller say which state the reference
answer, teaches a small model to say the same in one forward pass, and compares the two on problems.held_out. The judge
ends in the run's folder under `model`, the findings under `report`, both in MLflow; with the same run.name an
interrupted run goes on.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jobs._cli import run_command
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError, check_model_folder, config_digest, resolve_path
from pipeline.problems import check_sources

REGISTERED = "judge"


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Teaches, measures and writes the judge; 0 when it got there."""
    from jobs._teaching import tracked

    cfg = named(cfg, args.config)
    check_model_folder(cfg.model.path)
    _check(cfg)
    folder = run_folder(cfg)
    with held(folder), cluster(namespace=str(cfg.run.name)), tracked(cfg, folder, "judge", REGISTERED) as tracker:
        report = _run(cfg, folder, tracker)
    from jobs._judge_report import table

    print(table(report))
    print(f"judge: {folder / 'model'} ({report['judge']['digest'][:12]}); report: {folder / 'report'}")
    return 0


def _check(cfg: RunConfig) -> None:
    plan = cfg.judge_training
    if {source.kind for source in cfg.problems.train} != {"tiny"} and (plan.altered or plan.short):
        raise UserError(
            "judge_training.altered and short are segments of the tiny world with other content; set both, and "
            "short_steps, to 0 for other sources of problems.train"
        )
    check_sources([*cfg.problems.train, *cfg.problems.held_out])
    if not cfg.problems.held_out:
        raise UserError("problems.held_out is empty; a judge is not to be trusted unmeasured, so give it a source")
    if cfg.learner.micro_batch_tokens < cfg.judge.max_tokens:
        raise UserError(
            f"learner.micro_batch_tokens ({cfg.learner.micro_batch_tokens}) cannot hold one prompt of judge.max_tokens "
            f"({cfg.judge.max_tokens}); raise the first or lower the second"
        )


def _run(cfg: RunConfig, folder: Path, tracker: Any) -> dict[str, Any]:
    from jobs import _judge_data, _judge_report
    from jobs._teaching import teach
    from pipeline.judge.lessons import make_draw, teaching_plan
    from pipeline.loop.remote import get

    data = _judge_data.gather(cfg, folder)
    base, prompt = _base(cfg, folder / "base")
    counts = _judge_data.make_lessons(cfg, data, prompt)
    print(f"lessons: {counts}", flush=True)
    plan = teaching_plan(cfg.judge_training)
    teach(cfg, plan, folder, base, partial(make_draw, str(data.lessons)), tracker)
    report = {**_judge_report.measure(cfg, data, folder / "model"), "lessons": counts}
    _judge_report.write(report, folder / "report")
    get(tracker.log_step.remote(plan.steps - 1, _judge_report.metrics(report)), 60, "the tracker")
    get(tracker.log_folder.remote(str(folder / "report"), "judge"), 60, "the tracker")
    get(tracker.log_table.remote(_judge_report.threshold_rows(report), "tables/thresholds.json"), 60, "the tracker")
    get(tracker.log_folder.remote(str(folder / "model"), "judge/model"), 60, "the tracker")
    digest, step = report["judge"]["digest"], plan.steps - 1
    place = {"version": 0, "digest": digest, "step": step, "config_digest": config_digest(cfg)}
    registered = get(tracker.register_version.remote(str(folder / "model"), **place), 60, "the registry")
    print(f"registered as {REGISTERED} version {registered.number}", flush=True)
    return report


def _base(cfg: RunConfig, folder: Path) -> tuple[Path, Any]:
    """The folder to start from, and its prompt: a small empty model, or the judge to go on from."""
    from jobs._teaching import empty_model
    from pipeline.judge.lessons import teaching_plan
    from pipeline.judge.prompt import JudgePrompt

    plan = cfg.judge_training
    if plan.base is not None:
        from transformers import AutoTokenizer

        base = check_model_folder(str(resolve_path(plan.base)))
        return base, JudgePrompt(AutoTokenizer.from_pretrained(base), f"judge_training.base: {base}")
    from pipeline.judge.vocabulary import small_tokenizer

    tokenizer = small_tokenizer()
    return empty_model(tokenizer, teaching_plan(plan), cfg.judge.max_tokens + 1, folder), JudgePrompt(tokenizer)


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    _check(cfg)
    plan = cfg.judge_training
    train = sum(source.size or 0 for source in cfg.problems.train) or "all"
    held_out = ", ".join(f"{source.size or 'all'} {source.name}" for source in cfg.problems.held_out)
    start = f"the judge in {plan.base}" if plan.base else f"a new Llama of {plan.layers} layers, hidden {plan.hidden}"
    return (
        f"one rollout engine: {cfg.evaluation.samples} traces each of {train} training problems, and of held-out "
        f"problems: {held_out}\n"
        f"labels by {plan.labeller}; {plan.altered} altered and {plan.short} short questions beside the real ones\n"
        f"{cfg.learner.ranks} learner ranks: {plan.steps} supervised steps of {plan.tokens_per_step} tokens, the first "
        f"{plan.short_steps} of half as many, short ones\n"
        f"{start}"
    )


if __name__ == "__main__":
    sys.exit(run_command("train_judge", __doc__, main, plan=_plan))
