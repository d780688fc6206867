"""Put a registered version on some replicas by hand: `python -m jobs.canary start --candidate NUMBER|ALIAS` and `end`.

Nothing is measured and no alias moves. `--candidate previous` puts the version before beside the champion, to compare
their replies.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs._cli import run_command, whole_number
from jobs._dashboard import dashboard_arguments, dashboard_of
from jobs._tracking import with_local_tracking
from jobs.promote import NAMES, alone, check_no_canary, release_name
from pipeline.config import RunConfig, UserError
from serve.promotion.way_back import FAILURES, take_back

if TYPE_CHECKING:
    from jobs._replicas import LiveEndpoint


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Returns once the replicas have confirmed; 1 when they did not (the canary is then taken back)."""
    from jobs._replicas import LiveEndpoint

    args = _asked(args)
    live = LiveEndpoint(cfg, dashboard_of(args))
    try:
        with alone(cfg):
            return _end(live) if args.action == "end" else _start(cfg, args, live)
    except UserError:
        raise
    except FAILURES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _end(live: "LiveEndpoint") -> int:
    live.end_canary()
    print(f"all {len(live.states())} replicas serve {live.wanted().policy.fingerprint}")
    return 0


def _start(cfg: RunConfig, args: argparse.Namespace, live: "LiveEndpoint") -> int:
    from jobs import _released

    check_no_canary(live)
    cfg = with_local_tracking(cfg, args.services)
    registry = _released.open_registry(cfg)
    candidate = _released.release(cfg, _released.find(registry, args.candidate))
    present, on = live.wanted().policy, False
    try:
        live.start_canary(candidate.policy, args.replicas)
        on = True
    finally:
        if not on and (left := take_back(live, candidate.policy, present, cfg.gate.deadline_s)):
            print(f"error: {left}", file=sys.stderr)
    print(
        f"{candidate.name} is on {args.replicas} of {len(live.states())} replicas; `python -m jobs.canary end` ends it"
    )
    return 0


def _asked(args: argparse.Namespace) -> argparse.Namespace:
    """With the defaults of `start`. UserError for options that `end` would not read."""
    for name in ("candidate", "replicas"):
        if args.action == "end" and getattr(args, name) is not None:
            raise UserError(f"--{name} does nothing with `end`, which ends any canary; leave it out")
    args.candidate, args.replicas = args.candidate or "candidate", args.replicas or 1
    return args


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    args = _asked(args)
    if args.action == "end":
        return "every replica returns to what the deployment serves"
    return f"{args.candidate} of {cfg.tracking.registered_model} on {args.replicas} replica(s)"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["start", "end"])
    dashboard_arguments(parser)
    parser.add_argument("--candidate", type=release_name, help=f"start: {NAMES} (default: candidate)")
    parser.add_argument("--replicas", type=whole_number("--replicas"), help="start: how many get it (default: 1)")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("canary", __doc__, main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
