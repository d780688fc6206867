"""The run's memory in MLflow. One process has the Tracker; workers hand their numbers to it and open no run.

Two rules. What the caller needs to go on (start, the registry) fails with an error. What only informs (metrics,
artifacts) never stops a training: it is retried, then kept for later or dropped, and `counters` and the log say so.

A resumed run repeats its last steps. MLflow keeps every value it is given, so a value that came out the same is not
written again; one that differs is, and its step is listed in the tag `replayed_steps`. `history()` has the last one.
"""

import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pipeline.config import RunConfig, UserError
from pipeline.tracking import catalogue
from pipeline.tracking.connection import (
    TrackingError,
    connect,
    first_line,
    insist,
    is_permanent,
    shown,
    sqlite_folder,
    tracking_uri,
)
from pipeline.tracking.keys import (
    MAX_TAG,
    METRICS_PER_CALL,
    PARAMS_PER_CALL,
    as_params,
    batches,
    clean_key,
    cut,
    from_ranges,
    ranges,
)
from pipeline.tracking.registry import RegisteredVersion, Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

logger = logging.getLogger(__name__)

RUN_NAME = "decs.run_name"
PARENT = "mlflow.parentRunId"  # MLflow shows a run with this tag below that one
RESUMES = "resumes"
REPLAYED = "replayed_steps"
STATUSES = ("FINISHED", "FAILED", "KILLED")
BACKLOG = 2000  # batches of metrics kept while the server is away
DRAIN_S = 10  # longest time one call spends on sending them


class Tracker:
    """One MLflow run: `start`, then `log_*`, then `finish`. Not for use from a second process."""

    def __init__(
        self,
        uri: str,
        experiment: str = "decs",
        registered_model: str = "policy",
        *,
        start_deadline_s: float = 120,
        tries: int = 3,
        pause_s: float = 0.5,
    ) -> None:
        self.uri, self.experiment = uri, experiment
        self.run_id = ""
        self.counters: Counter[str] = Counter()
        self._tries, self._pause_s, self._away = tries, pause_s, False
        self._pid = os.getpid()
        self._client: MlflowClient = connect(uri, start_deadline_s)
        self.registry = Registry(self._client, registered_model, tries=tries, pause_s=pause_s)
        self._seen: dict[str, dict[int, float]] = {}
        self._replayed: set[int] = set()
        self._backlog: deque[list[Metric]] = deque()
        self._tables: list[dict[str, str]] = []
        self._last_ms = 0

    @classmethod
    def from_config(cls, config: RunConfig) -> "Tracker":
        """The store that `tracking` names; UserError when it does not answer."""
        return cls(tracking_uri(config), config.tracking.experiment, config.tracking.registered_model)

    # --- the run ---

    def start(
        self,
        run_name: str,
        params: Mapping[str, object],
        tags: Mapping[str, str] | None = None,
        resume_run_id: str | None = None,
        resume: bool = True,
    ) -> str:
        """Open the run and return its id.

        With `resume_run_id` that very run goes on; else, with `resume`, the newest one of this name in the experiment;
        else a new one begins. `params` is the (nested) config: leaves become parameters, the whole is `config.yaml`.
        Parameters of a run cannot change: after the n-th resume a changed one stands in a tag `resume_n/KEY`.
        UserError when the run to resume is not there or the store refuses.
        """
        try:
            run = self._find(run_name, resume_run_id, resume) or self._create(run_name)
            self.run_id = run.info.run_id
            resumed = bool(run.data.tags.get("decs.started"))
            self._remember(run)
            self._describe(run, params, {**(tags or {}), "decs.started": "true"}, resumed)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"run '{run_name}' cannot be opened in the MLflow store '{shown(self.uri)}' ({first_line(error)}); "
                "check that the store is there and writable"
            ) from error
        logger.info("MLflow run %s (%s) at %s", self.run_id, "resumed" if resumed else "new", shown(self.uri))
        return self.run_id

    def add_child(self, run_name: str) -> str:
        """Make a run of this name under the open one, for another process to `start`; returns its id. One that is
        there already is kept. UserError when the store refuses."""
        try:
            if found := self._find(run_name, None, True):
                return found.info.run_id
            tags = {RUN_NAME: run_name, PARENT: self._run()}
            return self._client.create_run(self._experiment_id(), run_name=run_name, tags=tags).info.run_id
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"run '{run_name}' cannot be made in the MLflow store '{shown(self.uri)}' ({first_line(error)}); "
                "check that the store is there and writable"
            ) from error

    def attach(self, run_id: str) -> None:
        """Add to a run that may be over (artifacts, tags, numbers) without opening it again: its status and parameters
        stay, and it does not count as resumed. UserError when it is not there."""
        run = self._named(run_id)
        self.run_id = run_id
        self._remember(run)

    def finish(self, status: str = "FINISHED") -> dict[str, int]:
        """End the run as FINISHED, FAILED or KILLED, sending what is still held back; returns the counters.

        Harmless when called twice. Losses are also written on the run, in tags `tracking/NAME`.
        """
        if status not in STATUSES:
            raise ValueError(f"status '{status}' is none of {', '.join(STATUSES)}")
        self._away = False  # one more earnest try
        self._drain()
        self.counters["lost_metrics"] += sum(map(len, self._backlog))
        self._backlog.clear()
        for name in ("failed_writes", "lost_metrics", "non_finite"):
            if self.counters[name]:
                self.set_tag(f"tracking/{name}", str(self.counters[name]))
        self._try("end the run", lambda: self._client.set_terminated(self._run(), status))
        return dict(self.counters)

    # --- numbers ---

    def log_step(self, step: int, metrics: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Log one training step. Names are the catalogue's, short or full; CatalogueError for any other.

        A non-finite value of a metric that may be so is left out, counted (`non_finite`) and warned about.
        """
        self._run()
        finite, strange = catalogue.check(metrics)
        for name, value in strange.items():
            self.counters["non_finite"] += 1
            logger.warning("step %d: %s is %s and is left out of the chart", step, name, value)
        self._enqueue(step, finite, timestamp_ms)
        self._drain()

    def history(self) -> dict[str, dict[int, float]]:
        """Full name -> step -> value, the last one where a step was repeated; earlier parts of a resumed run too."""
        return {name: dict(sorted(values.items())) for name, values in self._seen.items()}

    def set_tag(self, key: str, value: str) -> bool:
        """Tag the run; False (counted) when the store did not take it."""
        key, value = clean_key(key), cut(value, MAX_TAG)
        return self._try(f"set tag {key}", lambda: self._client.set_tag(self._run(), key, value))

    # --- artifacts: each returns False (counted) when the store did not take it ---

    def log_text(self, text: str, path: str) -> bool:
        """Keep `text` as the artifact `path`; a later one of the same path replaces it."""
        return self._try(f"log {path}", lambda: self._client.log_text(self._run(), text, path))

    def log_file(self, local: str | Path, folder: str | None = None) -> bool:
        """Keep a file under the artifact folder `folder`."""
        return self._try(f"log {local}", lambda: self._client.log_artifact(self._run(), str(local), folder))

    def log_folder(self, local: str | Path, folder: str | None = None) -> bool:
        """Keep what is in a folder under the artifact folder `folder`."""
        return self._try(f"log {local}", lambda: self._client.log_artifacts(self._run(), str(local), folder))

    def log_figure(self, figure: "Figure", path: str) -> bool:
        """Keep a matplotlib figure as `path` (.png or .svg)."""
        return self._try(f"log {path}", lambda: self._client.log_figure(self._run(), figure, path))

    def log_curves(self, title: str = "") -> bool:
        """Keep the run's curves (figures/) and its summary table (tables/summary.json)."""
        from pipeline.tracking.figures import log_curves

        return log_curves(self, title)

    def log_table(self, rows: Sequence[Mapping[str, object]], path: str) -> bool:
        """Keep rows as a table that MLflow shows as such. `path` ends in .json; logging it again replaces it (MLflow's
        own call appends, which would double the rows of a repeated step)."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        table = {"columns": columns, "data": [[row.get(column) for column in columns] for row in rows]}
        if not self.log_text(json.dumps(table, default=str), path):
            return False
        entry = {"path": path, "type": "table"}
        if entry in self._tables:
            return True
        self._tables = [*self._tables, entry][-50:]  # MLflow reads this list from a tag of limited length
        text = json.dumps(self._tables)
        return self._try("list tables", lambda: self._client.set_tag(self._run(), "mlflow.loggedArtifacts", text))

    # --- the registry ---

    def register_version(
        self,
        source: str,
        *,
        version: int,
        digest: str,
        step: int,
        config_digest: str,
        tags: Mapping[str, str] | None = None,
    ) -> RegisteredVersion:
        """Register a snapshot folder (path or URI) of this run; the same digest gives the same registered version."""
        return self.registry.register(
            source, self._run(), version=version, digest=digest, step=step, config_digest=config_digest, tags=tags
        )

    def set_alias(self, alias: str, number: int) -> None:
        """Point candidate, champion or previous at registered version `number` (see `Registry.set_alias`)."""
        self.registry.set_alias(alias, number)

    def tag_version(self, number: int, tags: Mapping[str, str]) -> None:
        """Tag registered version `number`."""
        self.registry.tag(number, tags)

    def served_version(self) -> RegisteredVersion | None:
        """What the endpoint must answer with, None before the first champion."""
        return self.registry.served()

    # --- inside ---

    def _run(self) -> str:
        if os.getpid() != self._pid:
            raise TrackingError("a Tracker belongs to the process that made it; send metrics to that process instead")
        if not self.run_id:
            raise TrackingError("no run is open; call Tracker.start first")
        return self.run_id

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            folder = sqlite_folder(self.uri)  # without a server, artifacts belong beside the database
            place = (folder / "artifacts" / clean_key(self.experiment)).as_uri() if folder else None
            try:
                return self._client.create_experiment(self.experiment, artifact_location=place)
            except Exception as error:
                found = self._client.get_experiment_by_name(self.experiment)  # another job may have been first
                if found is None:
                    raise error
        if found.lifecycle_stage != "active":
            raise UserError(
                f"the MLflow experiment '{self.experiment}' is deleted; restore it or set another tracking.experiment"
            )
        return found.experiment_id

    def _find(self, run_name: str, run_id: str | None, resume: bool) -> "Run | None":
        if run_id is not None:
            return self._named(run_id)
        if not resume:
            return None
        quoted = run_name.replace("'", "''")
        found = self._client.search_runs(
            [self._experiment_id()], f"tags.`{RUN_NAME}` = '{quoted}'", max_results=1, order_by=["start_time DESC"]
        )
        return self._client.get_run(found[0].info.run_id) if found else None

    def _named(self, run_id: str) -> "Run":
        try:
            run = self._client.get_run(run_id)
        except Exception as error:
            raise UserError(
                f"run id '{run_id}' cannot be read from the MLflow store '{shown(self.uri)}' ({first_line(error)}); "
                "check tracking.uri or start without a run id"
            ) from error
        if run.info.lifecycle_stage != "active":
            raise UserError(f"MLflow run '{run_id}' is deleted; restore it or start without a run id")
        return run

    def _create(self, run_name: str) -> "Run":
        return self._client.create_run(self._experiment_id(), run_name=run_name, tags={RUN_NAME: run_name})

    def _remember(self, run: "Run") -> None:
        """Read back what an earlier part of the run has logged."""
        self._seen, self._last_ms = {}, 0
        for name in run.data.metrics:
            points = sorted(self._client.get_metric_history(self.run_id, name), key=lambda point: point.timestamp)
            self._seen[name] = {point.step: point.value for point in points}
            self._last_ms = max(self._last_ms, points[-1].timestamp if points else 0)
        self._replayed = from_ranges(run.data.tags.get(REPLAYED, ""))
        self._tables = json.loads(run.data.tags.get("mlflow.loggedArtifacts", "[]"))

    def _describe(self, run: "Run", config: Mapping[str, object], tags: Mapping[str, str], resumed: bool) -> None:
        from mlflow.entities import Param, RunTag

        params, old = as_params(config), run.data.params
        changed = {key: value for key, value in params.items() if key in old and old[key] != value}
        written = {clean_key(key): cut(str(value), MAX_TAG) for key, value in tags.items()}
        part = "config.yaml"
        if resumed:
            count = int(run.data.tags.get(RESUMES, "0")) + 1
            written[RESUMES] = str(count)
            written.update({clean_key(f"resume_{count}/{key}"): value for key, value in changed.items()})
            part = f"config_resume_{count}.yaml"
            self._client.update_run(self.run_id, status="RUNNING")
        for batch in batches([Param(k, v) for k, v in params.items() if k not in old], PARAMS_PER_CALL):
            self._client.log_batch(self.run_id, params=batch)
        if changed or not resumed:
            self._client.log_text(self.run_id, yaml.safe_dump(json.loads(json.dumps(config, default=str))), part)
        for batch in batches([RunTag(k, v) for k, v in written.items()], PARAMS_PER_CALL):
            self._client.log_batch(self.run_id, tags=batch)

    def _enqueue(self, step: int, metrics: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Put what is new into the backlog, and mark the steps that differ from what was logged before."""
        from mlflow.entities import Metric

        fresh = {n: v for n, v in metrics.items() if self._seen.get(n, {}).get(step) != v}
        again = [name for name in fresh if step in self._seen.get(name, {})]
        self._last_ms = max(timestamp_ms or int(time.time() * 1000), self._last_ms + 1)  # the last one must win
        points = [Metric(name, value, self._last_ms, step) for name, value in fresh.items()]
        for batch in batches(points, METRICS_PER_CALL):
            self._backlog.append(batch)
        while len(self._backlog) > BACKLOG:
            self.counters["lost_metrics"] += len(self._backlog.popleft())
        for name, value in fresh.items():
            self._seen.setdefault(name, {})[step] = value
        if again:
            self.counters["replayed_values"] += len(again)
            if step not in self._replayed:
                self._replayed.add(step)
                self.set_tag(REPLAYED, ranges(self._replayed))

    def _drain(self) -> None:
        """Send the backlog, oldest first; stop where the store is away, drop and count what it refuses."""
        until = time.monotonic() + DRAIN_S
        while self._backlog and time.monotonic() < until:
            batch = self._backlog[0]
            sent = self._try("log metrics", lambda batch=batch: self._client.log_batch(self._run(), metrics=batch))
            if not sent and self._away:
                return
            if not sent:
                self.counters["lost_metrics"] += len(batch)
            self._backlog.popleft()

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        """Do it, or count and warn. While the store is known to be away one try has to do."""
        self._run()
        self.counters["writes"] += 1
        try:
            insist(action, self.counters, tries=1 if self._away else self._tries, pause_s=self._pause_s)
        except Exception as error:  # noqa: BLE001 (any back end's error; counted, and training goes on)
            self._away = not is_permanent(error)
            self.counters["failed_writes"] += 1
            logger.warning(
                "MLflow could not %s (failure %d; %d batches of metrics wait): %s",
                *(what, self.counters["failed_writes"], len(self._backlog), first_line(error)),
            )
            return False
        self._away = False
        return True
