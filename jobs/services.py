"""Local services of a run: `python -m jobs.services up|down|status [--folder runs/services]`.

`up` starts a Ray head and an MLflow server on free loopback ports and prints their addresses; what already runs is
kept, what has died is replaced. `down` ends exactly what `up` started. `status` exits with 1 when something is down.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from jobs._cli import Parser, whole_number
from jobs._launches import mlflow_launch, mlflow_url, ray_launch
from jobs._services import (
    Launch,
    Service,
    ServiceEnded,
    ServiceError,
    await_ready,
    check_running,
    free_port,
    locked,
    read_state,
    root_process,
    spawn,
    stop,
    write_state,
)
from pipeline.config import UserError

FOLDER = "runs/services"
ATTEMPTS = 3
ORDER = ("ray", "mlflow")  # one after the other: Ray gives up when it gets too little of the processor at its start


def up(
    folder: str | Path = FOLDER,
    *,
    cpus: int = 8,
    dashboard_port: int = 0,
    gcs_port: int = 0,
    mlflow_port: int = 0,
    only: tuple[str, ...] = ORDER,
) -> dict[str, Service]:
    """Starts what is not running yet and returns all services by name.

    A port of 0 means any free one. Raises UserError for a taken port and ServiceError when a service does not come
    up; in both cases the services this call had started are ended again.
    """
    folder = Path(folder).resolve()
    with locked(folder):
        services = read_state(folder)
        # Ray's jobs are told MLflow's address, so it is settled first, and a replaced MLflow goes back to its old one.
        former = services["mlflow"].ports["http"] if "mlflow" in services else 0
        if "mlflow" in services and root_process(services["mlflow"]):
            mlflow_port = former
        elif "mlflow" in only:
            mlflow_port = free_port(mlflow_port) if mlflow_port else _first_free(former)
        launches = {
            "mlflow": lambda: mlflow_launch(folder, mlflow_port),
            "ray": lambda: ray_launch(
                cpus=cpus,
                dashboard_port=dashboard_port,
                gcs_port=gcs_port,
                tracking_uri=mlflow_url(mlflow_port) if mlflow_port else None,
            ),
        }
        return _bring_up(folder, services, {name: launches[name] for name in ORDER if name in only})


def _first_free(port: int) -> int:
    try:
        return free_port(port)
    except UserError:
        return free_port()


def _bring_up(
    folder: Path, services: dict[str, Service], launches: Mapping[str, Callable[[], Launch]]
) -> dict[str, Service]:
    fresh: list[str] = []
    try:
        for name, launch in launches.items():
            if name not in services or root_process(services[name]) is None:
                fresh.append(name)
                _start_with_retries(name, folder, services, launch)
        for name in launches:
            check_running(services[name])  # one may have ended while another was waited for
    except BaseException:
        for name in reversed(fresh):
            if name in services:
                stop(services.pop(name))
        write_state(folder, services)
        raise
    return services


def _start_with_retries(name: str, folder: Path, services: dict[str, Service], launch: Callable[[], Launch]) -> None:
    """On a busy machine Ray's own start-up deadlines (15 and 30 s, fixed) end it; another start usually succeeds."""
    for attempt in range(1, ATTEMPTS + 1):
        if name in services:
            stop(services.pop(name))  # its first process is gone; end what that left behind
        plan = launch()
        services[name] = spawn(plan, folder)
        write_state(folder, services)
        try:
            return await_ready(services[name], plan)
        except ServiceEnded as error:
            if attempt == ATTEMPTS:
                raise
            reason = str(error).splitlines()[-1].strip()
            print(f"{name} ended while starting ({reason}); start {attempt + 1} of {ATTEMPTS}", file=sys.stderr)


def down(folder: str | Path = FOLDER) -> list[str]:
    """Ends every service in the state file, with all its descendants; returns their names. Fine when none runs."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        return []
    with locked(folder):
        services = read_state(folder)
        ended = []
        for name in ORDER:
            if name in services:
                stop(services[name])
                del services[name]
                write_state(folder, services)
                ended.append(name)
        return ended


def status(folder: str | Path = FOLDER) -> dict[str, tuple[Service, bool]]:
    """Every known service with whether its first process still runs."""
    return {name: (service, root_process(service) is not None) for name, service in read_state(Path(folder)).items()}


def _print(service: Service, state: str) -> None:
    addresses = "  ".join(f"{role} {url}" for role, url in service.urls.items())
    print(f"{service.name:8} {state:8} pid {service.pid:<8} {addresses}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m jobs.services", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("action", choices=["up", "down", "status"])
    parser.add_argument("--folder", default=FOLDER, help="where the state, the logs and MLflow's data are kept")
    cpus = whole_number("--cpus", most=10_000)
    parser.add_argument("--cpus", type=cpus, default=8, help="logical CPUs of the Ray head (default 8)")
    for name in ("dashboard", "gcs", "mlflow"):
        port = whole_number(f"--{name}-port", 0, 65535)
        parser.add_argument(f"--{name}-port", type=port, default=0, help="0 (default): a free port")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.action == "down":
        ended = down(options.folder)
        print(f"ended: {', '.join(ended)}" if ended else "nothing was running")
        return 0
    if options.action == "status":
        known = status(options.folder)
        for service, alive in known.values():
            _print(service, "up" if alive else "down")
        return 0 if len(known) == len(ORDER) and all(alive for _, alive in known.values()) else 1
    ports = {name: getattr(options, name) for name in ("dashboard_port", "gcs_port", "mlflow_port")}
    for service in up(options.folder, cpus=options.cpus, **ports).values():
        _print(service, "up")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; 0 on success, 1 when a service fails, 2 for a mistake in the call."""
    try:
        return _run(_parser().parse_args(arguments))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ServiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
