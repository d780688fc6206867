"""Runs a program that a model wrote, once, with limits on what it can use and reach.

Contained: wall-clock and processor time, memory of each process (RLIMIT_AS), the size of each file it writes, the
environment (no variables of ours, so no keys), the standard library alone, a folder of its own that is removed, and its
process group, killed at the deadline. Where user namespaces are allowed (`unshare`), also: no network at all, and a
process namespace, so that whatever it started dies with it.

Not contained: the file system. The program runs as the user who evaluates and can read and write what that user can.
Nor is the number of processes it starts, or their memory together. Without namespaces Python's sockets refuse, but a
program that goes around Python reaches the network, and a process that leaves the group outlives the deadline. So
evaluate code on a machine, or in a container, that holds nothing you would miss; `isolation()` says which of the two
it would be.
"""

import functools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

CHILD = Path(__file__).with_name("sandbox_child.py")
UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")
START_S = 10.0  # for the interpreter, on a crowded machine; the program's own time is limited by the processor clock
END_S = 10.0  # for a killed process to be gone


@dataclass(frozen=True)
class Limits:
    """Of one run: `seconds` of processor time (and START_S more by the clock), bytes of memory and of written files."""

    seconds: float = 6.0
    memory_bytes: int = 2 << 30
    file_bytes: int = 64 << 20


class Ended(StrEnum):
    """How a run ended. FAILED: with an error, or at a limit. SANDBOX says nothing about the program: it never began."""

    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    SANDBOX = "sandbox"


@dataclass(frozen=True)
class Run:
    """`output` is what it wrote to standard output, or the function's value as JSON; `detail` its last complaint."""

    ended: Ended
    output: str = ""
    detail: str = ""


@functools.cache
def isolation() -> tuple[str, ...]:
    """The command in front of a program: `unshare ...` where the system allows it, else nothing."""
    if shutil.which(UNSHARE[0]) is None:
        return ()
    try:
        tried = subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=START_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return UNSHARE if tried.returncode == 0 else ()


def run_program(source: str, stdin: str, limits: Limits, function: str | None = None) -> Run:
    """Runs `source` with `stdin`, or calls its `function` (also a method of its class Solution) with the JSON list in
    `stdin`. Never raises for what the program does."""
    try:
        with tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True) as name:
            return _run_in(Path(name), source, stdin, limits, function)
    except OSError as error:  # no room, no processes
        return Run(Ended.SANDBOX, detail=f"{type(error).__name__}: {error}")


def _run_in(folder: Path, source: str, stdin: str, limits: Limits, function: str | None) -> Run:
    (folder / "solution.py").write_text(source, encoding="utf-8", errors="replace")
    (folder / "stdin").write_text(stdin, encoding="utf-8", errors="replace")
    settings = {
        "function": function,
        "memory_bytes": limits.memory_bytes,
        "cpu_seconds": math.ceil(limits.seconds),
        "file_bytes": limits.file_bytes,
    }
    command = [*isolation(), sys.executable, "-I", "-S", "-X", "utf8", str(CHILD), json.dumps(settings)]
    with (
        (folder / "stdin").open("rb") as given,
        (folder / "stdout").open("wb") as out,
        (folder / "stderr").open("wb") as complaints,
    ):
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=given,
            stdout=out,
            stderr=complaints,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"},
            start_new_session=True,
        )
        late = _wait(process, limits.seconds + START_S)
    return _outcome(folder, process.returncode, late, "result.json" if function else "stdout")


def _wait(process: subprocess.Popen, seconds: float) -> bool:
    """Whether the deadline passed; the process and its group are gone either way."""
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # also what it left behind when it ended by itself
        except ProcessLookupError:
            pass
        process.wait(timeout=END_S)


def _outcome(folder: Path, status: int, late: bool, result: str) -> Run:
    detail = _text(folder / "stderr")[-500:].strip()
    if not (folder / "started").exists():
        return Run(Ended.SANDBOX, detail=detail or f"ended with status {status} before it began")
    if late:
        return Run(Ended.TIMEOUT, detail=detail)
    if status != 0:
        return Run(Ended.FAILED, detail=detail)
    return Run(Ended.DONE, _text(folder / result), detail)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
