"""Where a reply's weights come from: `python -m jobs.lineage <reply id | mark | version number | alias> [--json]`.

Back from the version to its snapshot (every byte checked), the run and step that made it, the config (its digest
recomputed), the commit, the problems it was trained on, and its parents down to the model the run began with. Exit
code 0; 1 when something contradicts what was recorded; 2 when nothing is found.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from jobs._cli import run_command, tracking_line
from jobs._lineage_find import known_versions
from jobs._lineage_query import choose, parse
from jobs._lineage_trace import trace
from jobs._lineage_tree import lines
from jobs._tracking import with_local_tracking
from jobs.services import FOLDER
from pipeline.config import RunConfig, UserError
from pipeline.tracking import Provenance, TrackingError, tracking_uri

WHAT = "what to trace back; a number is the snapshot's version, as in v8, not the registry's number that promote takes"


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints a tree, or JSON, for each version that made the reply; 1 when a check failed."""
    queries = parse(args.what)
    cfg = with_local_tracking(cfg, args.services)
    try:
        store = Provenance.open(tracking_uri(cfg), cfg.tracking.registered_model)
        known, aliases = known_versions(cfg, store), store.aliases()
        traced = [trace(cfg, store, *choose(query, known, aliases), known) for query in queries]
    except TrackingError as error:
        raise UserError(str(error)) from error
    if args.json:
        print(json.dumps({"asked": args.what, "versions": traced}, indent=1))
    else:
        print("\n\n".join("\n".join(lines(told)) for told in traced))
    faults = [fault for told in traced for fault in told["faults"]]
    for fault in faults:
        print(f"WRONG: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="reply id | mark | version | alias", help=WHAT)
    parser.add_argument("--json", action="store_true", help="everything, with all problem ids, as JSON")
    parser.add_argument("--services", metavar="FOLDER", default=FOLDER, help="folder of `jobs.services`")


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    return f"nothing; reads {tracking_line(cfg)} and {cfg.storage.uri}"


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("lineage", __doc__.splitlines()[0], main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
