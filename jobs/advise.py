"""Which lever to pull first, by measured figures: `python -m jobs.advise --config ... --profile profile.yaml`."""

import argparse
import sys
from collections.abc import Sequence

from jobs._cli import run_command
from pipeline.config import RunConfig, resolve_path
from serve.advice import Advice, advise
from serve.advice_profile import read_profile


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints the levers in order."""
    print(plan(cfg, args))
    return 0


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """The levers in order, as text; a dry run shows the same."""
    found = advise(read_profile(resolve_path(args.profile)), cfg)
    if not found:
        return "nothing in these figures calls for a lever (figures that are missing were not judged)"
    return "\n\n".join(_text(number, advice) for number, advice in enumerate(found, 1))


def _text(number: int, advice: Advice) -> str:
    return "\n".join(
        [
            f"{number}. {advice.lever}  [{advice.situation}; evidence: {advice.evidence}]",
            f"   set     {'  '.join(advice.patch) or 'nothing in the config'}",
            f"   why     {advice.why}",
            f"   needs   {advice.precondition}",
            f"   verify  {advice.verify}",
        ]
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", metavar="FILE", required=True, help="YAML of measured figures (serve/advice_profile.py)"
    )


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("advise", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
