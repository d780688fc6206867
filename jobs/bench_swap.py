"""Swaps weights under load and checks every reply: `python -m jobs.bench_swap --config infra/presets/tiny.yaml`.

Uses the endpoint that runs, or deploys the config's model itself. Phases without and with swaps take turns under the
same load, so that their latencies compare on a busy machine. Writes runs/<name>/swap.json and an MLflow run; exit code
1 when a promise was broken.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jobs._bench_endpoint import Target, find_or_deploy, folder_of, http_client
from jobs._bench_environment import environment
from jobs._bench_figure import latency_figure
from jobs._bench_load import Load
from jobs._bench_requests import LENGTHS, plan, split
from jobs._bench_summary import QUIET, SWAPPING, broken_promises, summarise
from jobs._bench_swaps import KINDS, Swaps, check_kill
from jobs._bench_weights import Alternating
from jobs._cli import run_command, whole_number
from jobs._dashboard import dashboard_arguments, dashboard_of
from jobs._runs import held, named, run_folder
from jobs._tracking import keep_run, with_local_tracking
from pipeline.config import RunConfig, UserError, config_digest
from pipeline.tracking import code_tags, save_figure
from serve.promotion.way_back import FAILURES

ROUNDS = 2  # of a quiet and a swapping phase
QUIET_PART = 4  # a quiet phase has this part of the swapping phase's requests
ATTEMPT_S = 120.0  # for one request


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Measures, prints the figures and the promises that were broken."""
    _check(args)
    cfg = named(with_local_tracking(cfg, args.services), "bench-swap")
    folder = run_folder(cfg)
    with held(folder):
        target = find_or_deploy(cfg, dashboard_of(args))
        if args.kill_replica:
            check_kill(target)
        result, load, swaps = _measure(cfg, args, target, folder)
        result["broken_promises"] = broken_promises(result, KINDS if args.bad_snapshots else 0)
        (folder / "swap.json").write_text(json.dumps(result, indent=1))
        figure = save_figure(latency_figure(load.replies, swaps.record), folder / "swap.png")
    result["mlflow_run_id"] = keep_run(cfg, "bench_swap", [folder / "swap.json", figure])
    (folder / "swap.json").write_text(json.dumps(result, indent=1))
    _show(result, folder)
    return 1 if result["broken_promises"] else 0


def _check(args: argparse.Namespace) -> None:
    if not 0 <= args.stream_share <= 1:
        raise UserError(f"--stream-share {args.stream_share:g}: a share is between 0 and 1")
    if args.requests < QUIET_PART * ROUNDS:
        raise UserError(f"--requests {args.requests}: at least {QUIET_PART * ROUNDS} are needed for all phases")


def _measure(
    cfg: RunConfig, args: argparse.Namespace, target: Target, folder: Path
) -> tuple[dict[str, Any], Load, Swaps]:
    from pipeline.problems import load_problems

    before = environment()
    prompts = [problem.prompt for problem in load_problems(cfg.problems.held_out, cfg.run.seed)]
    shutil.rmtree(folder / "bad", ignore_errors=True)  # of an earlier measurement of this name
    weights = Alternating(folder / "weights", folder_of(target.policy), cfg, cfg.run.seed)
    swaps = Swaps(cfg, target, weights, args.swaps, folder / "bad" if args.bad_snapshots else None)
    swaps.kill_after = max(1, args.swaps // 2) if args.kill_replica else None
    load = asyncio.run(_phases(cfg, args, target, swaps, prompts))
    told = {
        "name": cfg.run.name,
        "endpoint": target.endpoint.url,
        "deployed_here": target.deployed,
        "replicas": len(target.endpoint.replicas),
        "clients": args.clients,
        "stream_share": args.stream_share,
        "lengths": _lengths(cfg),
        "swap_mode": cfg.serve.swap_mode,
        "seeds": {"requests": cfg.run.seed, "weights": cfg.run.seed},
        "environment": before,
        "config_digest": config_digest(cfg),
        **code_tags(),
    }
    return {**summarise(load.replies, swaps.record, args.swaps), **told}, load, swaps


async def _phases(
    cfg: RunConfig, args: argparse.Namespace, target: Target, swaps: Swaps, prompts: Sequence[str]
) -> Load:
    async with http_client(args.clients, ATTEMPT_S + cfg.serve.drain_deadline_s) as http:
        load = Load(http, target.endpoint.url, target.endpoint.model_id, args.clients)
        counts = list(zip(split(args.requests, ROUNDS), split(args.swaps, ROUNDS), strict=True))
        quiet = [max(1, requests // QUIET_PART) for requests, _ in counts]
        with tqdm(total=args.requests + sum(quiet), unit="request", smoothing=0.1, disable=None) as bar:

            def shapes(index: int, count: int) -> list:
                return plan(count, cfg.run.seed + index, prompts, _lengths(cfg), args.stream_share)

            try:
                for index, (requests, count) in enumerate(counts):
                    await load.run(shapes(index, quiet[index]), QUIET, lambda _: bar.update())
                    await _swapping(load, swaps, shapes(index, requests), count, bar)
            finally:
                bar.set_postfix_str("back to the former weights")
                await _restore(swaps)
    return load


async def _swapping(load: Load, swaps: Swaps, shapes: Sequence[Any], count: int, bar: tqdm) -> None:
    """The phase's requests, and as many more as it takes until its swaps are over."""
    start, over = len(load.replies), asyncio.Event()

    def progress() -> float:
        return (len(load.replies) - start) / len(shapes)

    def done(reply: object) -> None:
        bar.total = max(bar.total, bar.n + 1)
        bar.update()

    sending = asyncio.create_task(load.run(shapes, SWAPPING, done, over))
    swapping = asyncio.create_task(swaps.during(count, progress, bar.set_postfix_str))
    try:
        await asyncio.wait((sending, swapping), return_when=asyncio.FIRST_COMPLETED)
        if not swapping.done():
            await sending  # it ends before the swaps only by an error of its own
            raise RuntimeError("the load ended before its swaps")
        await swapping
        over.set()
        await sending
    finally:
        for task in (sending, swapping):
            task.cancel()
        await asyncio.gather(sending, swapping, return_exceptions=True)


async def _restore(swaps: Swaps) -> None:
    try:
        await swaps.restore()
    except FAILURES as error:
        swaps.record.failures.append(f"back to the former weights: {type(error).__name__}: {error}")


def _lengths(cfg: RunConfig) -> list[int]:
    """Those that fit beside a prompt."""
    return [length for length in LENGTHS if length <= cfg.engine.max_model_len // 2] or [1]


def _show(result: dict[str, Any], folder: Path) -> None:
    promised = ("requests", "failed", "truncated", "mixed_unmarked", "without_version")
    names = (*promised, "broken_streams", "resent", "swaps")
    print("  ".join(f"{name} {result[name]}" for name in names))
    print("  ".join(f"{name} {result[name]}" for name in ("pause_ms", "publish_to_confirm_s", "latency_ratio")))
    for kind, reason in result["refused"].items():
        print(f"refused {kind}: {reason}")
    if result["deployed_here"]:
        print(f"the endpoint {result['endpoint']} stays up; `python -m jobs.services down` ends it with its cluster")
    print(f"written to {folder / 'swap.json'}")
    for text in result["broken_promises"]:
        print(f"BROKEN: {text}", file=sys.stderr)
    for text in result["failures"]:
        print(f"  {text}", file=sys.stderr)


def _arguments(parser: argparse.ArgumentParser) -> None:
    for option, default, what in (
        ("--requests", 400, "sent while weights are swapped"),
        ("--swaps", 10, "how many"),
        ("--clients", 8, "requests at a time"),
    ):
        parser.add_argument(option, type=whole_number(option), default=default, help=f"{what} (default {default})")
    parser.add_argument("--stream-share", type=float, default=0.5, help="of the requests (default 0.5)")
    parser.add_argument("--kill-replica", action="store_true", help="kill one replica's process in the middle")
    parser.add_argument("--bad-snapshots", action="store_true", help="also ask for six kinds of broken snapshots")
    dashboard_arguments(parser)


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    _check(args)
    return (
        f"{args.requests} requests by {args.clients} clients beside {args.swaps} swaps, and a quarter as many without; "
        f"where nothing is deployed, {cfg.serve.replicas} replica(s) of {cfg.model.path}"
    )


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("bench_swap", __doc__.splitlines()[0], main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
