"""Deploy a model as an OpenAI-compatible endpoint on a running cluster: `python -m jobs.serve --config ...`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs._cli import model_line, run_command
from jobs._dashboard import dashboard_arguments, dashboard_of
from pipeline.config import RunConfig, resolve_path, results_root
from serve.client import FAILURES, deploy, effective
from serve.effective import differences, table
from serve.first_snapshot import first_policy
from serve.kv_budget import device_of, kv_budget_line, read_model_config
from serve.levers import check_levers
from serve.preconditions import checked_access
from serve.scaling import replicas_text
from serve.speculation.from_config import speculation_line


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Deploys `model.path` and prints the address once every replica has confirmed its weights; 1 when none does."""
    if args.show_effective:
        return show_effective(dashboard_of(args))
    check_levers(cfg, device_of(cfg), model=_model_config(cfg))
    dashboard = dashboard_of(args)
    policy = first_policy(cfg, results_folder(cfg))
    try:
        endpoint = deploy(dashboard, cfg, policy.folder, policy)
    except FAILURES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"endpoint {endpoint.url}/v1  model {endpoint.model_id}  weights {policy.fingerprint}  "
        f"replicas {len(endpoint.replicas)}  page {endpoint.url}/ui"
    )
    return 0


def show_effective(dashboard: str) -> int:
    """Prints what the running endpoint's engine was asked for beside what it runs with; 1 when something differs."""
    rows = effective(dashboard)
    print(table(rows))
    return 1 if differences(rows) else 0


def results_folder(cfg: RunConfig) -> Path:
    """Where a snapshot of a plain model folder is kept: beside the run's results, here when those are remote."""
    return results_root(cfg) / "endpoint"


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """What the command would start, one line each. UserError for what could not."""
    if args.show_effective:
        return "nothing: the running endpoint is asked what its engine runs with"
    check_levers(cfg, device_of(cfg), model=_model_config(cfg))
    access = checked_access(cfg)
    port = cfg.serve.port or "a free port"
    keys = f"{len(access.keys)} keys" if access.keys else "no keys: open to whoever reaches it"
    return "\n".join(
        [
            f"{replicas_text(cfg)} of {cfg.model.path} as '{cfg.serve.model_id}', "
            f"{cfg.serve.cpus_per_replica:g} CPU each, on {cfg.serve.host}, {port}",
            f"model: {model_line(cfg)}",
            f"swaps in mode {cfg.serve.swap_mode}, draining at most {cfg.serve.drain_deadline_s:g} s",
            f"routing: {_routing(cfg)}; tool calls: {cfg.serve.tool_parser or 'not parsed'}",
            f"access: {keys}; at most {access.max_waiting} requests in a replica",
            speculation_line(cfg.speculation),
            kv_budget_line(cfg),
        ]
    )


def _routing(cfg: RunConfig) -> str:
    if cfg.serve.routing == "least_connections":
        return "to the replica with the fewest connections"
    return "to the replica that had the prompt's start before"


def _model_config(cfg: RunConfig) -> dict | None:
    """The model's config.json, None where the folder is not there yet."""
    file = Path(resolve_path(cfg.model.path)) / "config.json"
    return read_model_config(file) if file.is_file() else None


def _arguments(parser: argparse.ArgumentParser) -> None:
    dashboard_arguments(parser)
    parser.add_argument(
        "--show-effective",
        action="store_true",
        help="deploy nothing; show what the running endpoint's engine was asked for and what it runs with",
    )


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("serve", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
