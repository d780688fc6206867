"""Keeps what became of a candidate: an MLflow run with the table of limits, and tags on the registered version."""

import logging
import time
from typing import TYPE_CHECKING

from jobs._released import Release
from pipeline.config import RunConfig, UserError
from serve.promotion.flow import Outcome
from serve.promotion.record import metrics_of, rows_of, tags_of

if TYPE_CHECKING:
    from pipeline.tracking import Registry

logger = logging.getLogger(__name__)


def keep(cfg: RunConfig, registry: "Registry", candidate: Release, against: str, outcome: Outcome) -> str | None:
    """The id of the MLflow run. None (and a warning) where the store fails: what is served has been decided."""
    from pipeline.tracking import TrackingError

    at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    tags = tags_of(outcome.result, outcome.reason, outcome.checks, at, against)
    try:
        run_id = _run(cfg, candidate, outcome, tags)
        registry.tag(candidate.number, {**tags, "gate.run_id": run_id})
    except (TrackingError, UserError) as error:
        logger.warning("the decision on %s could not be kept in MLflow: %s", candidate.name, error)
        return None
    return run_id


def _run(cfg: RunConfig, candidate: Release, outcome: Outcome, tags: dict[str, str]) -> str:
    from pipeline.tracking import Tracker

    tracker = Tracker.from_config(cfg)
    name = f"gate-{candidate.registered.name}-{candidate.number}"
    run_id = tracker.start(name, cfg.model_dump(mode="json"), tags, resume=False)
    tracker.log_step(candidate.registered.version, metrics_of(outcome.checks))
    tracker.log_table(rows_of(outcome.checks), "gate.json")
    tracker.finish()
    return run_id
