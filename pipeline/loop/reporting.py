"""The driver's part of the report. Nothing here ends a run: what fails is shown, and the page says "not measured"."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from pipeline.config import RunConfig, UserError
from pipeline.loop.remote import RunFailed, get
from pipeline.loop.report import PAGE, write_report

TRACKER_DEADLINE_S = 120
Show = Callable[[str], None]


def measure(cfg: RunConfig, controller: Any, name: str, show: Show) -> None:
    """Has the engines answer held-out problems (`name`: before, after)."""
    try:
        line = get(controller.measure.remote(name), cfg.loop.step_deadline_s, "the held-out problems' answers")
    except (RunFailed, UserError, ray.exceptions.RayError) as error:
        show(f"held-out problems were not measured {name} training; the report will say so: {error}")
    else:
        if line:
            show(f"{name} training: {line}")


def keep_report(cfg: RunConfig, folder: Path, tracker: Any, show: Show) -> str:
    """Writes the run's report to its folder and to MLflow; returns the file's path."""
    history = get(tracker.history.remote(), TRACKER_DEADLINE_S, "the tracker's history")
    page = write_report(cfg, folder, history)
    if not get(tracker.log_text.remote(page, PAGE), TRACKER_DEADLINE_S, "the tracker to keep the report"):
        show("the report could not be kept in MLflow")
    show(f"report: {folder / PAGE}")
    return str(folder / PAGE)
