"""The frame all commands share: config and overrides, dry runs, and mistakes told in one sentence.

Nothing heavy is imported here, so `--help`, `--dry-run` and mistakes in a config answer at once.
"""

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from pipeline.config import (
    RunConfig,
    UserError,
    check_model_folder,
    load_config,
    resolve_paths,
    to_yaml,
)

Main = Callable[[RunConfig, argparse.Namespace], int]
Plan = Callable[[RunConfig, argparse.Namespace], str]

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

EPILOG = """\
Options are set by key=value, on top of the config file: learner.lr=3e-4 problems.train.0.size=100
Values are YAML. --dry-run shows all options and what would start, and starts nothing."""


class Parser(argparse.ArgumentParser):
    """Tells mistakes as all commands do, without the usage text."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def run_command(
    name: str,
    description: str,
    main: Main,
    extra_args: Callable[[argparse.ArgumentParser], None] | None = None,
    plan: Plan | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Parse the command line, run `main` with the resolved config, and return the exit code (for `sys.exit`).

    `extra_args` adds the command's own arguments; `plan` says in words what would start (None: a training run).
    `argv` is the command line without the program (None: the process's own). A UserError becomes `error: ...` on
    stderr and 2, an interrupt one line and 130; any other exception goes on, so Python shows it and exits with 1.
    """
    try:
        args = _parser(name, description, extra_args).parse_intermixed_args(argv)
        from pipeline.preflight import check_places

        cfg = resolve_paths(load_config(args.config, args.overrides))
        check_places(cfg)
        if args.dry_run:
            sys.stdout.write(dry_run_text(cfg, plan(cfg, args) if plan else describe_training(cfg)))
            return 0
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        for chatty in ("httpx", "httpx2", "ray"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, _interrupt)
        return main(cfg, args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM (a stopped job, a supervisor) ends a command as Ctrl-C does, so that it cleans up; and Ctrl-C works even
    where a shell started the command with the signal ignored."""
    raise KeyboardInterrupt


def _parser(
    name: str, description: str, extra_args: Callable[[argparse.ArgumentParser], None] | None
) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"python -m jobs.{name}",
        description=description,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file such as infra/presets/tiny.yaml (default: none)")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and the plan, then stop")
    if extra_args is not None:
        extra_args(parser)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="options to change")
    return parser


def whole_number(option: str, least: int = 1, most: int = 10**9) -> Callable[[str], int]:
    """For `type=` of an argument: a whole number between `least` and `most`, or UserError."""

    def parsed(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise UserError(f"{option} takes a whole number from {least} to {most}, got '{text[:40]}'")
        return int(text)

    return parsed


def dry_run_text(cfg: RunConfig, plan: str) -> str:
    """The config as YAML, then the plan as comments: the whole is again a config file."""
    lines = "\n".join(f"#   {line}" for line in plan.splitlines())
    return f"{to_yaml(cfg)}\n# would start:\n{lines}\n"


def describe_training(cfg: RunConfig) -> str:
    """What a training run would start and ask for, one line each. Raises UserError where options contradict."""
    from pipeline.preflight import check_training

    resources = check_training(cfg)
    rollout = cfg.rollout
    lines = [f"{_count(p.count, p.name)}, each {p.cpus:g} CPU and {p.gpus:g} GPU" for p in resources.parts]
    return "\n".join(
        [
            f"{cfg.run.steps} steps of {rollout.prompts_per_step} prompts x {rollout.group_size} samples, "
            f"up to {rollout.max_new_tokens} new tokens",
            *lines,
            f"asks Ray for {resources.cpus:g} CPU and {resources.gpus:g} GPU in all",
            f"engines: {cfg.engine.dtype} on {cfg.engine.device}, tensor parallel {cfg.engine.tensor_parallel}",
            f"learner: {cfg.model.dtype}, ZeRO stage {cfg.learner.zero_stage}, reward {cfg.reward.name}",
            f"model: {model_line(cfg)}",
            f"storage: {_without_password(cfg.storage.uri)}",
            f"tracking: {tracking_line(cfg)}",
            f"endpoint: {'each published version is swapped in' if cfg.publish.endpoint else 'left alone'}",
        ]
    )


def tracking_line(cfg: RunConfig) -> str:
    """Which MLflow the run would report to, without a password."""
    if cfg.tracking.uri:
        return _without_password(cfg.tracking.uri)
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return f"{_without_password(uri)} (MLFLOW_TRACKING_URI)"
    return "sqlite under the storage folder"


def model_line(cfg: RunConfig) -> str:
    """The folder of the model, or why it cannot be used yet."""
    try:
        return str(check_model_folder(cfg.model.path))
    except UserError as error:  # a dry run may be made before the model is there
        return f"NOT READY: {error}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _without_password(uri: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", uri)
