"""Train a model with DECS: `python -m jobs.train --config infra/presets/tiny.yaml [key=value ...]`.

With the same run.name an interrupted run goes on from its last checkpoint.
"""

import argparse
import sys

from jobs._cli import run_command
from jobs._training import run_training
from pipeline.config import RunConfig


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Runs the training to its end; 0 when it got there."""
    result = run_training(cfg, args.config)
    print(f"run {result['name']}: {result['steps']} steps, version {result['version']}, ledger {result['ledger']}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("train", __doc__, main))
