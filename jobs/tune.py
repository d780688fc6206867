"""Which value of an option suits your requests: `python -m jobs.tune block-size --trace requests.jsonl --config ...`,
or `python -m jobs.tune draft-length --log decisions.jsonl`.

Each kind of tuning is a module with `SUMMARY`, `arguments(parser)`, `plan(cfg, args)` and `main(cfg, args)`.
"""

import argparse
import sys
from collections.abc import Sequence

from jobs import _tune_blocks, _tune_draft
from jobs._cli import run_command
from pipeline.config import RunConfig, UserError

KINDS = {"block-size": _tune_blocks, "draft-length": _tune_draft}


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Runs the kind of tuning that was named."""
    _check(args)
    return KINDS[args.what].main(cfg, args)


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """What it would do."""
    _check(args)
    return KINDS[args.what].plan(cfg, args)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=list(KINDS), help="; ".join(f"{n}: {m.SUMMARY}" for n, m in KINDS.items()))
    for name, kind in KINDS.items():
        kind.arguments(parser.add_argument_group(name))


def _check(args: argparse.Namespace) -> None:
    """UserError for an option of another kind of tuning: it would do nothing."""
    own = _options(args.what)
    for kind in KINDS:
        for action in [] if kind == args.what else _options(kind).values():
            if action.dest not in own and getattr(args, action.dest) != action.default:
                raise UserError(f"{action.option_strings[0]} belongs to `{kind}` and does nothing for `{args.what}`")


def _options(kind: str) -> dict[str, argparse.Action]:
    probe = argparse.ArgumentParser(add_help=False)
    KINDS[kind].arguments(probe)
    return {action.dest: action for action in probe._actions}


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("tune", __doc__, main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
