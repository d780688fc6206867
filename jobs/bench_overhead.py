"""What the endpoint costs against vLLM's own server: `python -m jobs.bench_overhead --config infra/presets/tiny.yaml`.

Both are up together, one replica each, with the same model, flags, cores and niceness. Rounds take turns in who is
measured first, and figures are compared within a round, so that what disturbs the machine disturbs both. Writes
runs/<name>/overhead.json and overhead.md; exit code 1 only when something failed.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from math import ceil
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm

from jobs._bench_bare import MemoryWatch, bare_launch, check_alike, conditions, started
from jobs._bench_cases import OURS, THEIRS, Case, Outcome, cases, figures, order, table
from jobs._bench_endpoint import Target, find_or_deploy, folder_of, http_client, replica_process
from jobs._bench_environment import environment
from jobs._bench_load import Load
from jobs._bench_replies import faults
from jobs._bench_requests import Shape, plan
from jobs._cli import run_command, whole_number
from jobs._dashboard import dashboard_arguments, dashboard_of
from jobs._runs import held, named, run_folder
from jobs._tracking import keep_run, with_local_tracking
from pipeline.config import RunConfig, UserError, config_digest
from pipeline.engine.options import EngineOptions
from pipeline.tracking import code_tags
from serve import client
from serve.arguments import running_config
from serve.engine_config import kv_tokens

FAILURES_SHOWN = 20
MOST_FILLED = 1 << 18  # tokens
ATTEMPT_S = 180.0  # for one request


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Measures and prints the table; 1 when a request failed or the two do not give the same greedy reply."""
    every = _cases(args)
    cfg = named(with_local_tracking(cfg, args.services), "bench-overhead")
    cfg = cfg.model_copy(update={"serve": cfg.serve.model_copy(update={"replicas": 1})})
    folder = run_folder(cfg)
    with held(folder):
        target = find_or_deploy(cfg, dashboard_of(args))
        result = _beside(cfg, args, target, folder, every)
        text = result.pop("table")
        (folder / "overhead.json").write_text(json.dumps(result, indent=1))
        (folder / "overhead.md").write_text(text)
    run_id = keep_run(cfg, "bench_overhead", [folder / "overhead.json", folder / "overhead.md"])
    print(f"{text}\nwritten to {folder / 'overhead.json'} (MLflow run {run_id})")
    for failure in result["failures"]:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if result["failures"] else 0


def _cases(args: argparse.Namespace) -> list[Case]:
    return cases(_numbers(args.clients, "clients"), _numbers(args.tokens, "tokens"))


def _numbers(text: str, name: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"--{name} {text}: give whole numbers above 0, such as 1,8,32")
    return [int(part) for part in parts]


def _beside(
    cfg: RunConfig, args: argparse.Namespace, target: Target, folder: Path, every: Sequence[Case]
) -> dict[str, Any]:
    from pipeline.problems import load_problems
    from serve.levers import engine_kwargs

    if len(target.endpoint.replicas) != 1:
        raise UserError(f"{len(target.endpoint.replicas)} replicas run, vLLM's server is one: deploy serve.replicas=1")
    state = next(iter(target.endpoint.replicas.values()))
    replica = replica_process(state, target.dashboard)
    running = running_config(target.args)
    options = EngineOptions.from_config(running.engine)
    kwargs = engine_kwargs(options, running)
    before = environment()
    launch = bare_launch(str(folder_of(target.policy)), target.endpoint.model_id, kwargs, options)
    prompts = [problem.prompt for problem in load_problems(cfg.problems.held_out, cfg.run.seed)]
    runs_with = {row.name: row.effective for row in client.effective(target.dashboard)}
    cache_tokens = min(kv_tokens(runs_with) or 0, MOST_FILLED)
    with started(launch, folder, cfg.serve.start_deadline_s) as service:
        alike = {OURS: conditions(replica.pid), THEIRS: conditions(service.pid)}
        check_alike(alike[OURS], alike[THEIRS])
        watch = MemoryWatch({OURS: replica.pid, THEIRS: service.pid})
        watch.start()
        urls = {OURS: target.endpoint.url, THEIRS: launch.urls["vllm"]}
        outcomes, failures = asyncio.run(
            _rounds(cfg, args, urls, target.endpoint.model_id, every, prompts, cache_tokens)
        )
        memory = watch.stop()
    return {
        "name": cfg.run.name,
        "cases": [outcome.to_dict() for outcome in outcomes],
        "rounds": args.rounds,
        "failures": failures[:FAILURES_SHOWN],
        "failed": len(failures),
        "conditions": alike,
        "memory_bytes": memory,
        "vllm_command": launch.command,
        "deployed_here": target.deployed,
        "cache_tokens_written_before": cache_tokens,
        "environment": before,
        "seeds": {"requests": cfg.run.seed},
        "config_digest": config_digest(cfg),
        **code_tags(),
        "table": table(outcomes),
    }


async def _rounds(
    cfg: RunConfig,
    args: argparse.Namespace,
    urls: dict[str, str],
    model: str,
    every: Sequence[Case],
    prompts: Sequence[str],
    cache_tokens: int,
) -> tuple[list[Outcome], list[str]]:
    outcomes = [Outcome(case) for case in every]
    most = max(case.clients for case in every)
    async with AsyncExitStack() as stack:
        # A client each: one asks all its idle connections, also those to the other side, before it sends a request.
        https = {side: await stack.enter_async_context(http_client(most, ATTEMPT_S)) for side in urls}
        failures = await _same_greedy(https, urls, model, prompts[0])
        for side, url in urls.items():
            await _age(cfg, https[side], url, model, every, prompts, cache_tokens)
        with tqdm(total=args.rounds * len(every) * 2, unit="measurement", disable=None) as bar:
            for number in range(args.rounds):
                for outcome in outcomes:
                    for side in order(number):
                        found, failed = await _measured(
                            cfg, https[side], urls[side], model, outcome.case, prompts, number
                        )
                        outcome.rounds[side].append(found)
                        failures += [f"{side}, {outcome.case.name}: {text}" for text in failed]
                        bar.update()
    return outcomes, failures


async def _age(
    cfg: RunConfig,
    http: httpx.AsyncClient,
    url: str,
    model: str,
    every: Sequence[Case],
    prompts: Sequence[str],
    cache_tokens: int,
) -> None:
    """Brings a server to where one that serves for a while is: each case was met once, and `cache_tokens` (the whole KV
    cache, or `MOST_FILLED`) were written, so that a new block takes the place of an old one. That costs some hundredths
    of throughput, and the endpoint may have served before while vLLM's server starts here."""
    for case in every:
        load = Load(http, url, model, case.clients)
        await load.run(_shapes(cfg, case, prompts, case.clients, 0), "warm", lambda _: None)
    most = max(every, key=lambda case: case.clients * case.tokens)
    load = Load(http, url, model, most.clients)
    await load.run(_shapes(cfg, most, prompts, ceil(cache_tokens / most.tokens), 0), "warm", lambda _: None)


def _shapes(cfg: RunConfig, case: Case, prompts: Sequence[str], count: int, number: int) -> list[Shape]:
    return plan(count, cfg.run.seed + number, prompts, [case.tokens], float(case.stream))


async def _measured(
    cfg: RunConfig, http: httpx.AsyncClient, url: str, model: str, case: Case, prompts: Sequence[str], number: int
) -> tuple[dict[str, float], list[str]]:
    load = Load(http, url, model, case.clients)
    await load.run(_shapes(cfg, case, prompts, case.clients, 0), "warm", lambda _: None)  # connections are there then
    load.replies.clear()
    began = time.monotonic()
    await load.run(_shapes(cfg, case, prompts, case.requests, number + 1), "measured", lambda _: None)
    wall = time.monotonic() - began
    failed = [text for reply in load.replies for text in faults(reply, None).values()]
    return figures(load.replies, wall), failed


async def _same_greedy(https: dict[str, httpx.AsyncClient], urls: dict[str, str], model: str, prompt: str) -> list[str]:
    """A sentence where the two do not choose the same tokens: then they do not serve the same model."""
    shape = Shape(0, prompt, 32, False, 0)
    found = {
        side: await Load(https[side], url, model, 1, temperature=0.0).ask(shape, "greedy") for side, url in urls.items()
    }
    if wrong := [f"{side}: {text}" for side, reply in found.items() for text in faults(reply, None).values()]:
        return wrong
    if found[OURS].token_ids != found[THEIRS].token_ids:
        return [f"the greedy replies differ: {found[OURS].token_ids} and {found[THEIRS].token_ids}"]
    return []


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=whole_number("--rounds"), default=6, help="of all cases (default 6)")
    parser.add_argument("--clients", default="1,8,32", help="requests at a time (default 1,8,32)")
    parser.add_argument("--tokens", default="16,128", help="lengths of a reply (default 16,128)")
    dashboard_arguments(parser)


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    _cases(args)
    return (
        f"vLLM's own server beside the endpoint; {args.rounds} rounds with {args.clients} clients and {args.tokens} "
        f"tokens; where nothing is deployed, one replica of {cfg.model.path}"
    )


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("bench_overhead", __doc__.splitlines()[0], main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
