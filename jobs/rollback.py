"""Go back at once: `python -m jobs.rollback [--to previous|NUMBER] [--reason TEXT]`.

Every replica swaps to the version before (its local copy is kept for this; replicas verify it), and the aliases
`champion` and `previous` change places.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs._cli import run_command
from jobs._dashboard import dashboard_arguments, dashboard_of
from jobs._tracking import with_local_tracking
from jobs.promote import NAMES, alone, release_name
from pipeline.config import RunConfig
from serve.promotion.way_back import FAILURES

if TYPE_CHECKING:
    from jobs._released import Release
    from pipeline.tracking import Registry


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints the seconds it took; 1 when a replica refused or did not confirm it in time (the old weights go on)."""
    with alone(cfg):
        return _back(cfg, args)


def _back(cfg: RunConfig, args: argparse.Namespace) -> int:
    from jobs import _released
    from jobs._replicas import LiveEndpoint
    from pipeline.tracking import TrackingError

    begun = time.monotonic()
    cfg = with_local_tracking(cfg, args.services)
    live = LiveEndpoint(cfg, dashboard_of(args))
    registry = _released.open_registry(cfg)
    target = _released.release(cfg, _released.find(registry, args.to), check=False)  # the replicas check it
    try:
        seconds = live.swap(target.policy)  # a canary ends with it
    except FAILURES as error:
        print(f"error: not rolled back to {target.name}: {error}", file=sys.stderr)
        return 1
    whole = time.monotonic() - begun
    print(f"rolled back to {target.name}: swapped in {seconds:.2f} s, {whole:.2f} s in all", flush=True)
    try:
        exchange(registry, target, args.reason)
    except TrackingError as error:
        again = f"run again with --to {target.number}"  # `previous` may name another one now
        print(f"error: it is served, but the registry does not say so: {error}; {again}", file=sys.stderr)
        return 1
    return 0


def exchange(registry: "Registry", target: "Release", reason: str) -> None:
    """Makes `target` the champion and the one before it `previous`, and tags that one with the reason."""
    left = registry.aliases().get("champion")
    registry.set_alias("champion", target.number)
    if left is not None and left != target.number:
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        registry.tag(left, {"rollback.reason": reason, "rollback.at": at, "rollback.to": str(target.number)})


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    return f"every replica swaps to {args.to} of {cfg.tracking.registered_model}, which becomes the champion"


def _arguments(parser: argparse.ArgumentParser) -> None:
    dashboard_arguments(parser)
    parser.add_argument("--to", type=release_name, default="previous", help=f"{NAMES} (default: previous)")
    parser.add_argument("--reason", default="rolled back by hand", help="kept as a tag of the version that is left")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("rollback", __doc__, main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
