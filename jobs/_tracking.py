"""Which MLflow a command reports to when nobody has said, and the run that keeps a measurement's files."""

import os
from collections.abc import Sequence
from pathlib import Path

from jobs._services import read_state, root_process
from pipeline.config import RunConfig, config_digest
from pipeline.tracking import Tracker, code_tags


def with_local_tracking(cfg: RunConfig, services: str) -> RunConfig:
    """`cfg` with `tracking.uri` of the local services' MLflow, unless the config or MLFLOW_TRACKING_URI names one, or
    it does not run."""
    if cfg.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI"):
        return cfg
    mlflow = read_state(Path(services)).get("mlflow")
    if mlflow is None or root_process(mlflow) is None:
        return cfg
    tracking = cfg.tracking.model_copy(update={"uri": mlflow.urls["mlflow"]})
    return cfg.model_copy(update={"tracking": tracking})


def keep_run(cfg: RunConfig, kind: str, files: Sequence[Path]) -> str:
    """One MLflow run, named as `cfg` is, with these files; returns its id."""
    tracker = Tracker.from_config(cfg)
    tags = {"kind": kind, "config_digest": config_digest(cfg), **code_tags()}
    run_id = tracker.start(str(cfg.run.name), cfg.model_dump(mode="json"), tags)
    kept = [tracker.log_file(path) for path in files]
    tracker.finish("FINISHED" if all(kept) else "FAILED")
    return run_id
