"""vLLM's own server beside the endpoint: the same model, flags, cores and niceness."""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from jobs._launches import base_env
from jobs._services import HOST, Launch, Service, ServiceError, await_ready, free_port, spawn, stop
from pipeline.config import UserError
from pipeline.engine.options import EngineOptions, engine_env

SAMPLE_S = 1.0
ENV = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # as the endpoint's replicas have it


def flags(kwargs: Mapping[str, Any]) -> list[str]:
    """vLLM's engine arguments as its command line takes them: `disable_` switches have no negative form."""
    found: list[str] = []
    for name, value in sorted(kwargs.items()):
        flag = name.replace("_", "-")
        if value is True:
            found.append(f"--{flag}")
        elif value is False:
            found += [] if flag.startswith("disable-") else [f"--no-{flag}"]
        elif value is not None:
            found += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return found


def bare_launch(model: str, name: str, kwargs: Mapping[str, Any], options: EngineOptions) -> Launch:
    """`python -m vllm.entrypoints.openai.api_server` for the model folder. On CPU its worker runs in the engine's own
    process, as in a replica."""
    port = free_port()
    url = f"http://{HOST}:{port}"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", HOST, "--port", str(port)]
    command += ["--model", model, "--served-model-name", name, "--uvicorn-log-level", "warning", *flags(kwargs)]
    if options.device == "cpu":
        command += ["--distributed-executor-backend", "uni"]
    env = base_env() | engine_env(options) | ENV
    return Launch("vllm", command, env, {"http": port}, {"vllm": url}, f"{url}/health")


@contextmanager
def started(launch: Launch, folder: Path, deadline_s: float) -> Iterator[Service]:
    """The server, ready; ended with all its processes at the end. UserError, with its last lines, when it does not
    start."""
    service = spawn(launch, folder)
    try:
        try:
            await_ready(service, launch, deadline_s)
        except ServiceError as error:
            raise UserError(f"vLLM's own server did not start: {error}") from error
        yield service
    finally:
        stop(service)


def tree(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def conditions(pid: int) -> dict[str, Any]:
    """Under which the processes of a server run: niceness and cores, each value that occurs among them."""
    found = tree(pid)
    return {
        "processes": len(found),
        "nice": sorted({process.nice() for process in found}),
        "cores": sorted({core for process in found for core in process.cpu_affinity()}),
    }


def check_alike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """UserError where one side has an advantage."""
    for name in ("nice", "cores"):
        if ours[name] != theirs[name]:
            raise UserError(
                f"the servers do not compare: {name} is {ours[name]} for the endpoint, {theirs[name]} for vLLM's own "
                "server; start this command and the cluster alike (RAY_worker_niceness=0, no taskset)"
            )


class MemoryWatch(threading.Thread):
    """Samples the resident bytes of each side's processes, and the machine's free memory, every second."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        super().__init__(daemon=True, name="memory")
        self.roots = dict(roots)
        self.bytes: dict[str, list[int]] = {name: [] for name in roots}
        self.available: list[int] = []
        self.lost = 0  # samples in which a process had ended meanwhile
        self.stopping = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        self.sample()
        while not self.stopping.wait(SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        """One look."""
        self.available.append(psutil.virtual_memory().available)
        for name, pid in self.roots.items():
            try:
                self.bytes[name].append(sum(process.memory_info().rss for process in tree(pid)))
            except psutil.NoSuchProcess:
                self.lost += 1

    def stop(self) -> dict[str, Any]:
        """Ends it; first, last and highest value of each side in bytes."""
        self.stopping.set()
        self.join(timeout=10)
        sides = {
            name: {"first": seen[0], "last": seen[-1], "peak": max(seen)} for name, seen in self.bytes.items() if seen
        }
        return {**sides, "available_least": min(self.available), "samples": len(self.available), "lost": self.lost}
