"""Which cluster's endpoint a command means: the one named on the command line, else that of the local services."""

import argparse
from pathlib import Path

from jobs._services import read_state
from jobs.services import FOLDER
from pipeline.config import UserError


def dashboard_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `dashboard_of` reads."""
    parser.add_argument("--dashboard", metavar="URL", help="the cluster's dashboard (default: the local services)")
    parser.add_argument("--services", metavar="FOLDER", default=FOLDER, help="folder of `jobs.services`")


def dashboard_of(args: argparse.Namespace) -> str:
    """The address of the cluster's dashboard. UserError when none is named and the local services are not up."""
    return args.dashboard or local_dashboard(args.services)


def local_dashboard(services: str) -> str:
    """The dashboard of the local services. UserError when they are not up."""
    state = read_state(Path(services))
    if "ray" not in state:
        raise UserError(
            f"no Ray head is noted in {services}/services.json: start one with `python -m jobs.services up`, or name a "
            "cluster with --dashboard http://HOST:8265"
        )
    return state["ray"].urls["dashboard"]
