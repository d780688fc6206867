"""Measure a model on held-out problems: `python -m jobs.evaluate --config FILE --model FOLDER|URL`.

Reports accuracy, tokens a reply, the share of thinking up to the first right answer (NRP), tokens per correct answer.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jobs import _measure
from jobs._cli import run_command
from jobs._ray import cluster
from pipeline.config import RunConfig, UserError, check_model_folder, resolve_path


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints the table, and writes `--out` when given."""
    from pipeline.loop.assemble import load_split, load_tokenizer

    problems = load_split(cfg, args.split)
    if not problems:
        raise UserError(f"the config has no problems.{args.split}; add a source to it")
    model = args.model or cfg.model.path
    with tqdm(total=len(problems) * cfg.evaluation.samples, unit="reply", disable=None) as bar:
        if "://" in model:
            check_model_folder(cfg.model.path)  # the tokenizer that turns replies into tokens
            tokenizer = load_tokenizer(cfg.model.path)
            name = args.model_id or cfg.serve.model_id
            measured = _measure.through_endpoint(cfg, tokenizer, model, name, problems, bar.update, cfg.run.seed)
        else:
            folder = check_model_folder(str(resolve_path(model)))
            measured = _through_engine(cfg, str(folder), problems, bar.update)
    columns = {"all": measured.summary, **measured.by_source()}
    print(_measure.table(columns))
    if args.out:
        report = {name: summary.to_dict() for name, summary in columns.items()}
        report |= {"requests": measured.requests, "failures": measured.failures, "versions": measured.versions}
        Path(args.out).write_text(json.dumps(report, indent=2))
    if measured.failures:
        print(f"{len(measured.failures)} of {measured.requests} requests failed, first: {measured.failures[0]}")
    return 1 if measured.failures else 0


def _through_engine(cfg: RunConfig, folder: str, problems: list, on_done: Any) -> _measure.Measured:
    from pipeline.loop.assemble import load_tokenizer
    from pipeline.loop.evaluate import sample

    tokenizer = load_tokenizer(folder)
    with cluster(namespace="evaluate"):
        traces = sample(cfg, folder, tokenizer, problems, on_done)
    scored = asyncio.run(_measure.score(cfg, tokenizer, problems, traces))
    return _measure.Measured({p.id: p for p in problems}, scored, len(traces), [])


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model folder or an endpoint's URL (default: model.path)")
    parser.add_argument("--model-id", help="the name the endpoint serves (default: serve.model_id)")
    parser.add_argument("--split", choices=["held_out", "train"], default="held_out")
    parser.add_argument("--out", help="a JSON file for the figures")


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    count = sum(source.size or 0 for source in cfg.problems.held_out)
    return f"{count or 'all'} held-out problems x {cfg.evaluation.samples} samples on one rollout engine or an endpoint"


if __name__ == "__main__":
    sys.exit(run_command("evaluate", __doc__, main, _arguments, _plan))
