"""`ray job submit`, as a call: packs what a job needs, submits it, follows its log."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import UserError
from pipeline.tracking.code_state import ENV, code_state

ROOT = Path(__file__).resolve().parents[1]
PACKED = ("pipeline", "jobs", "serve", "infra")  # all that a job imports or reads
# Ray tests folders without their slash and the root as ".": a pattern that matches one hides all that is in it.
KEPT = [pattern for top in PACKED for pattern in (f"!/{top}", f"!/{top}/**")]
EXCLUDES = ["/[!.]*", *KEPT, "__pycache__", ".?*", "*.key", "*.pem"]
LIMIT_BYTES = 100 << 20
NOISE = "(raylet)"  # advice about worker counts, written into every job's log


@dataclass(frozen=True)
class Job:
    """A submitted job and the client that knows it."""

    client: Any
    id: str


def package(root: Path = ROOT) -> list[tuple[str, int]]:
    """(relative path, bytes) of every file a job is sent, biggest first."""
    found = []
    for top in PACKED:
        for path in sorted((root / top).rglob("*")):
            relative = path.relative_to(root)
            hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
            if path.is_file() and not hidden and path.suffix not in (".key", ".pem"):
                found.append((str(relative), path.stat().st_size))
    return sorted(found, key=lambda item: -item[1])


def check_package(files: Sequence[tuple[str, int]], limit: int = LIMIT_BYTES) -> None:
    """UserError, naming the biggest files, when the package is over `limit` bytes."""
    total = sum(size for _, size in files)
    if total > limit:
        biggest = ", ".join(f"{path} ({size / 2**20:.0f} MiB)" for path, size in files[:3])
        raise UserError(
            f"a job would be sent {total / 2**20:.0f} MiB, the limit is {limit / 2**20:.0f} MiB; "
            f"move data and models out of {', '.join(PACKED)}; biggest: {biggest}"
        )


def submit(dashboard: str, entrypoint: Sequence[str], job_id: str, env: dict[str, str] | None = None) -> Job:
    """Submits a command to the cluster behind `dashboard`; it runs in a copy of the package."""
    import shlex

    from ray.job_submission import JobSubmissionClient

    logging.getLogger("ray").setLevel(logging.ERROR)  # it lists each file it leaves out, several times
    check_package(package())
    client = JobSubmissionClient(dashboard)
    told = {"PYTHONUNBUFFERED": "1", ENV: code_state(ROOT)}  # the package has no repository
    runtime_env = {"working_dir": str(ROOT), "excludes": EXCLUDES, "env_vars": {**told, **(env or {})}}
    command = shlex.join(entrypoint)
    return Job(client, client.submit_job(entrypoint=command, submission_id=job_id, runtime_env=runtime_env))


def follow(job: Job, show: Callable[[str], None]) -> bool:
    """Shows the job's lines as they come, to its end; True when it succeeded. Ctrl-C stops the job first."""

    async def tail() -> None:
        rest = ""
        async for chunk in job.client.tail_job_logs(job.id):
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                if NOISE not in line:
                    show(line.split("\r")[-1])
        if rest:
            show(rest)

    try:
        asyncio.run(tail())
    except KeyboardInterrupt:
        job.client.stop_job(job.id)
        raise
    return job.client.get_job_status(job.id) == "SUCCEEDED"
