"""Which MLflow a command reports to when nobody has said: that of the local services, while it runs."""

import os
from pathlib import Path

from jobs._services import read_state, root_process
from pipeline.config import RunConfig


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
