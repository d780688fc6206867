"""The table of serving levers, measured: `python -m jobs.bench_serve --config infra/presets/tiny.yaml --limit 40`.

One vLLM server a row, with the endpoint's engine arguments: no batching, static groups, continuous batching, then
FP8 weights, FP8 KV cache, speculation with a fixed and an adaptive length, and a trained checkpoint or a thinking
budget on top of each other. Each gets the same requests from vLLM's own load generator, and the same problems, whose
answers are checked. Writes runs/<name>/bench_serve.json, .md and .png with all raw results beside them, and an MLflow
run. With the same run.name it goes on, and keeps the rows that are there. Exit code 1 when a row was tried and failed.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs._bench_environment import environment
from jobs._bench_kept import keep, kept_rows, reused
from jobs._bench_rows import Row, chosen, stack_of
from jobs._bench_serve_arguments import arguments, choices_of, plan_text, settle
from jobs._bench_serve_checks import broken
from jobs._bench_serve_figures import Slo
from jobs._bench_serve_plot import levers_figure
from jobs._bench_table import ratios, text
from jobs._cli import run_command
from jobs._runs import held, named, run_folder
from jobs._tracking import keep_run, with_local_tracking
from pipeline.config import RunConfig, config_digest

if TYPE_CHECKING:
    from jobs._bench_measure import Bench, Entry

FILES = ("bench_serve.json", "bench_serve.md", "bench_serve.png")


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Measures the rows in the table's order, prints the table; 1 when a row was tried and failed."""
    from tqdm import tqdm

    from jobs._bench_client import LoadClient
    from pipeline.engine.options import EngineOptions

    settle(args, cfg)
    rows = chosen(args.rows)
    cfg = named(with_local_tracking(cfg, args.services), "bench-serve")
    folder = run_folder(cfg)
    with held(folder):
        before = environment()
        client = LoadClient(folder, EngineOptions.from_config(cfg.engine))
        try:
            with tqdm(unit="request", smoothing=0.1, disable=None) as bar:
                bench = _bench(cfg, args, client, folder, bar.update)
                bar.total = sum(_requests(row, bench) for row in rows)
                entries = _entries(bench, rows, bar)
        finally:
            client.close()
        result = _result(bench, args, entries, before)
        _write(result, folder)
    run_id = keep_run(bench.cfg, "bench_serve", [folder / name for name in FILES])
    print(f"{result['table']}\nwritten to {folder / FILES[0]} (MLflow run {run_id})")
    failed = [f"row {entry['row']}: {entry['why_not']}" for entry in entries if entry["failed"]]
    failed += broken(entries) if args.ci else []
    for sentence in failed:
        print(f"FAILED: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def _bench(cfg: RunConfig, args: argparse.Namespace, client: Any, folder: Path, done: Callable[[int], Any]) -> "Bench":
    from jobs._bench_answers import Price
    from jobs._bench_measure import Bench, Plan
    from jobs._evaluation import open_evaluation
    from pipeline.evaluation.suites import spread
    from serve.kv_budget import device_of

    limit, args.limit = args.limit, None  # every problem may be a prompt of the load; `limit` of them are answered
    evaluation = open_evaluation(cfg, args)
    cpu = device_of(cfg) == "cpu"
    units = len(os.sched_getaffinity(0)) if cpu else cfg.engine.tensor_parallel
    plan = Plan(
        requests=args.requests,
        repeats=args.repeats,
        lengths=args.tokens,
        rate=args.request_rate,
        temperature=args.temperature,
        slo=Slo(args.slo_ttft, args.slo_tpot),
        price=Price(args.price_per_hour, "core" if cpu else "GPU", units),
        choices=choices_of(args, cfg),
        prompts=[problem.prompt for problem in evaluation.problems],
    )
    evaluation = replace(evaluation, problems=spread(evaluation.problems, limit))
    return Bench(evaluation.cfg, plan, evaluation, client, folder, done)


def _requests(row: Row, bench: "Bench") -> int:
    from jobs._bench_measure import lengths_of

    each = bench.plan.requests * bench.plan.repeats + len(bench.evaluation.wanted)
    return each * len(list(lengths_of(row, bench.plan.choices)))


def _entries(bench: "Bench", rows: Sequence[Row], bar: Any) -> "list[Entry]":
    kept = kept_rows(bench, rows)
    entries: list[Entry] = []
    for row in rows:
        start = bar.n
        bar.set_postfix_str(f"row {row.name}")
        stack = stack_of(row, {entry["row"] for entry in entries if entry["ran"]})
        entries.append(_entry(bench, row, stack, reused(bench, row, stack, kept.get(row.name))))
        bar.update(start + _requests(row, bench) - bar.n)  # a row that is kept, or cannot run, is over too
    return entries


def _entry(bench: "Bench", row: Row, stack: Sequence[str], kept: "Entry | None") -> "Entry":
    """The kept entry where the row was measured in the same way before, else measured and kept."""
    if kept is not None:
        if row.name == "E":
            bench.note(kept)
        return kept
    entry = bench.entry(row, stack)
    keep(bench, row, stack, entry)
    return entry


def _result(bench: "Bench", args: argparse.Namespace, entries: Sequence["Entry"], before: dict) -> dict[str, Any]:
    from pipeline.tracking import code_tags

    cfg, price, options = bench.cfg, vars(bench.plan.price), bench.cfg.evaluation
    found = ratios(entries, bench.folder)
    rate = "inf" if math.isinf(args.request_rate) else args.request_rate
    return {
        "name": cfg.run.name,
        "model": cfg.model.path,
        "rows": list(entries),
        "ratios": found,
        "measured_with": bench.plan.identity() | {"request_rate": rate, "ignore_eos": True},
        "answers": {
            "problems": bench.evaluation.name,
            "asked": len(bench.evaluation.wanted),
            "max_new_tokens": cfg.rollout.max_new_tokens,
            **options.model_dump(include={"samples", "temperature", "top_p"}),
        },
        "price": price,
        "environment": before,
        "seeds": {"requests": cfg.run.seed, "answers": cfg.run.seed},
        "config_digest": config_digest(cfg),
        **code_tags(),
        "table": text(entries, found, price),
    }


def _write(result: dict[str, Any], folder: Path) -> None:
    from pipeline.tracking import save_figure

    (folder / FILES[0]).write_text(json.dumps(result, indent=1))
    (folder / FILES[1]).write_text(result["table"])
    save_figure(levers_figure(result["rows"]), folder / FILES[2])


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("bench_serve", __doc__.splitlines()[0], main, arguments, plan_text, argv)


if __name__ == "__main__":
    sys.exit(command())
