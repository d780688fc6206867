"""One change of an endpoint at a time from this machine: whoever reads, asks and confirms does so alone."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.config import UserError

POLL_S = 0.1


class NotMyTurn(TimeoutError):
    """Another change went on for too long; the text names its process."""


def lock_file(dashboard_url: str) -> Path:
    """The lock of a dashboard's changes, by its port (a host has many names) and the user."""
    return Path(tempfile.gettempdir()) / f"decs-endpoint-{dashboard_port(dashboard_url)}-{os.getuid()}.lock"


def dashboard_port(url: str) -> int:
    """UserError when `url` is no address."""
    try:
        return urlsplit(url).port or 80
    except ValueError as error:
        raise UserError(f"{url!r} is no address of a dashboard ({error}); write http://HOST:PORT") from None


@contextmanager
def my_turn(dashboard_url: str, deadline: float) -> Iterator[None]:
    """Waits at most `deadline` seconds for the changes of others, then holds the lock; a killed holder lets go.

    NotMyTurn after the deadline, UserError when the lock cannot be used. Other machines and users do not see it.
    """
    path = lock_file(dashboard_url)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"cannot use the lock {path} ({error.strerror}): remove it, or set TMPDIR") from None
    try:
        _wait(handle, path, deadline)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, path: Path, deadline: float) -> None:
    end = time.monotonic() + deadline
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                holder = os.pread(handle, 20, 0).decode("ascii", "replace") or "unknown"
                raise NotMyTurn(
                    f"waited {deadline:.0f} s for process {holder}, which is changing the endpoint too (lock {path}); "
                    "try again when it is done"
                ) from None
            time.sleep(POLL_S)
