"""Start, find and end the services of a local run: the Ray head and the MLflow server.

What was started is written to `<folder>/services.json`. A service is known by its process id together with the
process's start time, so that a recycled id is never taken for it (and never killed). Its descendants are found by the
process tree, by the session it opened and by a mark in their environment, whichever of the three still holds.
"""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

import httpx
import psutil

from pipeline.config import UserError, write_whole

HOST = "127.0.0.1"
MARK = "PIPELINE_SERVICE_MARK"  # environment variable that every process of a service inherits
LOG_LINES = 15
CLOCK_SLACK_S = 1.0  # the boot time is known to the second
START_DEADLINE_S = 240.0  # minutes only where many programs share few cores
LOCK_DEADLINE_S = 300.0
STOP_GRACE_S = 10.0
KILL_DEADLINE_S = 10.0


class ServiceError(RuntimeError):
    """A service did not start or end in time; the text names it and shows its last log lines."""


class ServiceEnded(ServiceError):
    """A service's first process ended by itself."""


@dataclass(frozen=True)
class Service:
    """One started service. `started` is its start in seconds since boot; `urls` and `ports` by role."""

    name: str
    pid: int
    started: float
    mark: str
    log: str
    ports: dict[str, int] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    temp_dir: str | None = None


@dataclass(frozen=True)
class Launch:
    """How to start one service, and the reply (`ready_text` in it) by which it says that it is ready."""

    name: str
    command: list[str]
    env: dict[str, str]
    ports: dict[str, int]
    urls: dict[str, str]
    ready_url: str
    ready_text: str = ""
    temp_dir: str | None = None


def free_port(asked: int = 0) -> int:
    """`asked` when it is free, any free loopback port for 0. UserError when the asked one is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, asked))
        except OSError as error:
            raise UserError(
                f"port {asked} on {HOST} cannot be used ({error.strerror}): end the program that holds it, "
                "name another port, or name 0 for a free one"
            ) from error
        return probe.getsockname()[1]


# --- state ---------------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, so that two commands never start or end the same services at once.

    ServiceError when another command holds it for longer than a start may take.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_DEADLINE_S
    with (folder / "services.lock").open("w") as handle:
        while not _locks(handle):
            if time.monotonic() > deadline:
                raise ServiceError(f"another command has held {handle.name} for {LOCK_DEADLINE_S:.0f} s; end it first")
            time.sleep(0.1)
        yield


def _locks(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_state(folder: Path) -> dict[str, Service]:
    """Services by name as last written; empty when there is no state file. UserError when it cannot be read."""
    path = folder / "services.json"
    if not path.exists():
        return {}
    try:
        return {name: Service(**entry) for name, entry in json.loads(path.read_text())["services"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is not a state file of this command ({error}): remove it or name another --folder"
        ) from error


def write_state(folder: Path, services: Mapping[str, Service]) -> None:
    """Replaces the state file."""
    text = json.dumps({"services": {name: asdict(service) for name, service in services.items()}}, indent=2)
    write_whole(folder / "services.json", text + "\n")


# --- processes -----------------------------------------------------------------------------------------------------


def start_time(process: psutil.Process) -> float:
    """When the process began, in seconds since boot: unlike the time of day it stays when the clock is set."""
    return process.create_time() - psutil.boot_time()


def root_process(service: Service) -> psutil.Process | None:
    """The service's first process while it runs; None when it ended or its id now belongs to another program."""
    try:
        process = psutil.Process(service.pid)
        same = abs(start_time(process) - service.started) <= CLOCK_SLACK_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def family(service: Service) -> list[psutil.Process]:
    """Every living process of the service: its tree, its session and whatever carries its mark."""
    found: dict[int, psutil.Process] = {}
    root = root_process(service)
    if root is not None:
        found[root.pid] = root
        for child in _children(root):
            found[child.pid] = child
    for process in psutil.process_iter():
        if process.pid not in found and _belongs(process, service):
            found[process.pid] = process
    return [process for process in found.values() if _alive(process)]


def _children(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _belongs(process: psutil.Process, service: Service) -> bool:
    try:
        if start_time(process) < service.started - CLOCK_SLACK_S or process.pid == os.getpid():
            return False
        return os.getsid(process.pid) == service.pid or process.environ().get(MARK) == service.mark
    except (psutil.Error, OSError):
        return False  # gone meanwhile, or another user's


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(processes: list[psutil.Process], *, kill: bool) -> None:
    for process in processes:
        try:
            process.kill() if kill else process.terminate()
        except psutil.NoSuchProcess:
            continue


def _await_end(service: Service, seconds: float) -> list[psutil.Process]:
    """Processes of the service still alive after at most `seconds`; empty as soon as all are gone."""
    deadline = time.monotonic() + seconds
    while (left := family(service)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def stop(service: Service, grace_s: float = STOP_GRACE_S) -> None:
    """Ends the service and all its descendants: asks, waits `grace_s` seconds, then forces.

    Raises ServiceError that names the processes which outlive even that.
    """
    known = family(service)
    _signal(known, kill=False)
    left = _await_end(service, grace_s)
    # A descendant that changed its session and lost its parent is only known from the list taken before the signal.
    left += [process for process in known if process not in left and _alive(process)]
    if left:
        _signal(left, kill=True)
        psutil.wait_procs(left, timeout=KILL_DEADLINE_S)
        left = [process for process in left if _alive(process)] + _await_end(service, KILL_DEADLINE_S)
    if left:
        names = ", ".join(f"{process.pid} ({process.name()})" for process in left)
        raise ServiceError(f"{service.name}: processes {names} are still there {KILL_DEADLINE_S:.0f} s after SIGKILL")
    _keep_logs(service)


def _keep_logs(service: Service) -> None:
    """Moves Ray's own logs beside the service's log, then removes the temporary folder."""
    if not service.temp_dir or not Path(service.temp_dir).is_dir():
        return
    logs = Path(service.temp_dir) / "session_latest" / "logs"
    target = Path(service.log).parent / f"{service.name}-logs"
    if logs.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(logs, target, symlinks=True, ignore_dangling_symlinks=True)
    shutil.rmtree(service.temp_dir, ignore_errors=True)


# --- start ---------------------------------------------------------------------------------------------------------


def spawn(launch: Launch, folder: Path) -> Service:
    """Starts the service's first process in a session of its own; it may not answer yet."""
    mark, log = uuid.uuid4().hex, folder / f"{launch.name}.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            launch.command,
            env={**launch.env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = start_time(psutil.Process(child.pid))
    return Service(
        launch.name, child.pid, started, mark, str(log), dict(launch.ports), dict(launch.urls), launch.temp_dir
    )


def await_ready(service: Service, launch: Launch, deadline_s: float = START_DEADLINE_S) -> None:
    """Waits until the service is ready; ServiceError when it ends first or takes longer than `deadline_s`."""
    deadline = time.monotonic() + deadline_s
    while not answers(launch.ready_url, launch.ready_text):
        check_running(service)
        if time.monotonic() > deadline:
            raise ServiceError(
                f"{service.name} was not ready at {launch.ready_url} within {deadline_s:.0f} s.\n"
                + last_lines(service.log)
            )
        time.sleep(0.2)


def check_running(service: Service) -> None:
    """ServiceEnded when the service's first process has ended."""
    if root_process(service) is None:
        raise ServiceEnded(f"{service.name} ended while starting.\n{last_lines(service.log)}")


def answers(url: str, text: str = "") -> bool:
    """True when `url` gives a 2xx reply that contains `text` within five seconds."""
    try:
        reply = httpx.get(url, timeout=5.0, trust_env=False)
    except httpx.HTTPError:
        return False
    return reply.is_success and text in reply.text


def last_lines(log: str, count: int = LOG_LINES) -> str:
    """The end of a log file, headed by its path."""
    try:
        text = Path(log).read_text(errors="replace")
    except OSError as error:
        return f"(no log at {log}: {error.strerror})"
    return "\n".join([f"Last lines of {log}:", *("  " + line for line in text.splitlines()[-count:])])
