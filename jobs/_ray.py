"""Joins the Ray cluster that a job was submitted to, or one started for this command alone."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pipeline.config import UserError

logger = logging.getLogger(__name__)
STARTS = 3
TIMED_OUT = "timed out during startup"  # in the message of the plain Exception that Ray raises

# Before anything imports Ray, which reads the last of these only then.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a private cluster on loopback; unset, Ray decides by itself
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # keeps Ray on 127.0.0.1 when told so


@contextmanager
def cluster(namespace: str) -> Iterator[str | None]:
    """Connects to the cluster in RAY_ADDRESS (set for submitted jobs), else starts one with this machine's cores.

    Yields the dashboard's URL, None where there is none.
    """
    import ray

    address = os.environ.get("RAY_ADDRESS")
    try:
        with _own_signals():
            context = _join(address, namespace) if address else _start(namespace)
    except ConnectionError as error:
        raise UserError(f"no Ray cluster answers at RAY_ADDRESS={address} ({error}); start one or unset it") from None
    try:
        dashboard = context.dashboard_url
        yield f"http://{dashboard}" if dashboard else None
    finally:
        ray.shutdown()


def _join(address: str, namespace: str) -> Any:
    import ray

    return ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING)


def _start(namespace: str) -> Any:
    """A Ray of this process's own. A busy machine may not start one within Ray's fixed 30 s, so it is tried again."""
    import psutil
    import ray

    options = {"num_cpus": os.cpu_count(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    for attempt in range(1, STARTS + 1):
        before = set(psutil.Process().children(recursive=True))
        try:
            return ray.init("local", namespace=namespace, log_to_driver=False, logging_level=logging.WARNING, **options)
        except Exception as error:
            if TIMED_OUT not in str(error) or attempt == STARTS:
                raise
            logger.warning("Ray did not start in time; start %d of %d", attempt + 1, STARTS)
            _end(set(psutil.Process().children(recursive=True)) - before)


def _end(processes: set[Any]) -> None:
    """Ends what a failed start left behind."""
    import psutil

    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(list(processes), timeout=10)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keeps this process's handlers: connecting, Ray puts its own on SIGTERM, which end the process past clean-ups."""
    here = threading.current_thread() is threading.main_thread()
    handlers = {ending: signal.getsignal(ending) for ending in (signal.SIGINT, signal.SIGTERM)} if here else {}
    try:
        yield
    finally:
        for ending, handler in handlers.items():
            signal.signal(ending, handler)
