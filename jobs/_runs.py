"""The name and the folder of a run, and the lock that keeps two commands out of one folder."""

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.config import RunConfig, UserError, results_root


def named(cfg: RunConfig, config_file: str | None) -> RunConfig:
    """`cfg` with a run name: the given one, else a new one from the config file's name and the time."""
    if cfg.run.name:
        return cfg
    stem = Path(config_file).stem if config_file else "run"
    name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    return cfg.model_copy(update={"run": cfg.run.model_copy(update={"name": name})})


def run_folder(cfg: RunConfig) -> Path:
    """The run's local folder."""
    return results_root(cfg) / str(cfg.run.name)


RUN_GOES_ON = (
    "run '{name}' is already going on (process {process}, folder {folder}); choose another run.name, or wait for it"
)


@contextmanager
def held(folder: Path, taken: str = RUN_GOES_ON) -> Iterator[None]:
    """Holds the run's folder for this process; UserError, with the text `taken`, when another command has it. A killed
    holder lets go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"storage.uri: no folder can be made at {folder} ({error.strerror}); give another") from None
    with (folder / "run.lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            process = handle.read().strip()
            raise UserError(taken.format(name=folder.name, process=process, folder=folder)) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
