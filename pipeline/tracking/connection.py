"""Reach an MLflow store, or say within a deadline why not."""

import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipeline.config import RunConfig, UserError, host_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)
T = TypeVar("T")

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",  # seconds a call; MLflow's own default is 120
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # retries are ours: bounded, counted and visible
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
DEFAULT_EXPERIMENT = "Default"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
EXAMPLE = "sqlite:///runs/mlflow.db"
_PERMANENT = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED", "UNAUTHENTICATED"}


class TrackingError(RuntimeError):
    """The store could not be written or read where the caller cannot go on without."""


def shown(uri: str) -> str:
    """`uri` without its password, for messages."""
    return re.sub(r"(//[^/:@]*):[^/@]*@", r"\1:***@", uri)


def tracking_uri(config: RunConfig) -> str:
    """`tracking.uri`, else MLFLOW_TRACKING_URI, else a sqlite file in the storage folder (`runs/` for a bucket)."""
    if uri := config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    folder = Path("runs") if "://" in config.storage.uri else Path(config.storage.uri)
    return f"sqlite:///{(folder / 'mlflow.db').resolve()}"


def check_tracking(config: RunConfig) -> None:
    """UserError unless the store's address is one that MLflow knows, and runs in it keep their files where it lies.

    A database other than sqlite, and MLflow's own experiment `Default`, would put them into a folder `mlruns` of
    whatever directory a process runs in.
    """
    uri = tracking_uri(config)
    check_uri(uri, "tracking.uri" if config.tracking.uri else "MLFLOW_TRACKING_URI")
    if sqlite_folder(uri) and config.tracking.experiment == DEFAULT_EXPERIMENT:
        raise UserError(
            f"tracking.experiment '{DEFAULT_EXPERIMENT}' is MLflow's own and keeps its files in the working directory; "
            "give another name"
        )


def check_uri(uri: str, where: str = "tracking.uri") -> None:
    """UserError unless `uri` is a server, a sqlite file or Databricks."""
    scheme = uri.partition("://")[0].partition("+")[0]
    server = scheme in ("http", "https") and bool(host_of(uri))
    if server or sqlite_folder(uri) or scheme == "databricks":
        return
    why = "is a database, which has no place for a run's files; start an MLflow server in front of it and"
    told = why if scheme in DATABASES else "is no MLflow store;"
    raise UserError(f"{where} '{shown(uri)}' {told} give http(s)://HOST:PORT, or sqlite:///FILE such as {EXAMPLE}")


def sqlite_folder(uri: str) -> Path | None:
    """The folder of a sqlite store; None for any other."""
    match = re.fullmatch(r"sqlite:///(.+)", uri)
    return Path(match[1]).resolve().parent if match else None


def connect(uri: str, deadline_s: float = 120) -> "MlflowClient":
    """A client whose store has answered once. UserError when it does not within `deadline_s`, or the URI is no good.

    A new sqlite store is created on the way, which takes a few seconds.
    """
    check_uri(uri)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    _make_folder(uri)
    found: list[MlflowClient] = []
    failed: list[Exception] = []

    def reach() -> None:
        try:
            found.append(_reach(uri, time.monotonic() + deadline_s))
        except Exception as error:  # noqa: BLE001 (any back end's error; raised below)
            failed.append(error)

    thread = threading.Thread(target=reach, daemon=True, name="mlflow-connect")
    thread.start()
    thread.join(deadline_s)
    if found:
        return found[0]
    why = first_line(failed[0]) if failed else f"no answer within {deadline_s:g} s"
    raise UserError(
        f"the MLflow store '{shown(uri)}' cannot be used ({why}); start the server, or set tracking.uri to one that "
        f"answers, for example {EXAMPLE}"
    ) from (failed[0] if failed else None)


def _reach(uri: str, until: float) -> "MlflowClient":
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    while True:
        try:
            client.search_experiments(max_results=1)
            return client
        except Exception as error:
            if "timed out" not in str(error) or time.monotonic() > until:  # a busy server may yet answer
                raise
            logger.info("the MLflow store %s is slow to answer; asking again", shown(uri))


def _make_folder(uri: str) -> None:
    folder = sqlite_folder(uri)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder of the MLflow store '{uri}' cannot be made ({error.strerror}); set tracking.uri to a place "
            "that can be written"
        ) from error


def first_line(error: BaseException) -> str:
    """The beginning of an error's text, on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {shown(lines[0])[:300]}" if lines else type(error).__name__


def is_permanent(error: BaseException) -> bool:
    """True where trying again cannot help: the call itself is refused."""
    return getattr(error, "error_code", None) in _PERMANENT or isinstance(error, FileNotFoundError | TypeError)


def insist(action: Callable[[], T], counters: Counter[str], *, tries: int, pause_s: float, budget_s: float = 20) -> T:
    """`action()`, tried up to `tries` times with a doubling pause, none begun after `budget_s`; then its error.

    Together with the limit on one call, a caller waits some 35 s at most.
    """
    until = time.monotonic() + budget_s
    for attempt in range(tries):
        try:
            return action()
        except Exception as error:
            if is_permanent(error) or attempt + 1 == tries or time.monotonic() > until:
                raise
            counters["retries"] += 1
            logger.info("MLflow did not take a call (%s); trying again", first_line(error))
            time.sleep(pause_s * 2**attempt)
    raise ValueError("tries must be at least 1")
