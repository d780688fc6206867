"""What the store knows of a registered version and of the run that made it. Reads only."""

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.tracking.connection import TrackingError, connect, first_line, insist
from pipeline.tracking.registry import OWN_TAGS, RegisteredVersion, Registry, view

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlflow import MlflowClient

CONFIGS = ("config.yaml", "config_resume_")  # the run's config, and those of its resumes where it had changed


@dataclass(frozen=True)
class RunFacts:
    """One run. `started` in milliseconds since 1970; `configs` the YAML texts by artifact name."""

    run_id: str
    name: str
    status: str
    started: int
    tags: dict[str, str]
    configs: dict[str, str] = field(default_factory=dict)


class Provenance:
    """One store, one registered model."""

    def __init__(self, client: "MlflowClient", model: str) -> None:
        self._client, self.model = client, model
        self._registry = Registry(client, model)
        self._tags: dict[int, dict[str, str]] = {}
        self.counters: Counter[str] = Counter()

    @classmethod
    def open(cls, uri: str, model: str, deadline_s: float = 120) -> "Provenance":
        """Connect to the store at `uri`; UserError when it does not answer in time."""
        return cls(connect(uri, deadline_s), model)

    def versions(self) -> list[RegisteredVersion]:
        """All registered versions, newest first; those that were not made here are left out and counted."""
        found = []
        for entry in self._registry.entries():
            self._tags[int(entry.version)] = dict(entry.tags)
            if OWN_TAGS - entry.tags.keys():
                self.counters["foreign_versions"] += 1
                continue
            found.append(view(entry))
        return sorted(found, key=lambda one: -one.number)

    def tags_of(self, number: int) -> dict[str, str]:
        """The tags of a version that `versions` has seen; empty for others."""
        return self._tags.get(number, {})

    def aliases(self) -> dict[str, int]:
        """Alias -> registry number."""
        return self._registry.aliases()

    def run(self, run_id: str) -> RunFacts | None:
        """The run with its configs; None when the store has none of this id."""
        try:
            run = self._do("read a run", lambda: self._client.get_run(run_id))
        except TrackingError as error:
            if getattr(error.__cause__, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        info = run.info
        return RunFacts(run_id, info.run_name, info.status, info.start_time, dict(run.data.tags), self._configs(run_id))

    def _configs(self, run_id: str) -> dict[str, str]:
        listed = self._do("list a run's artifacts", lambda: self._client.list_artifacts(run_id))
        names = [entry.path for entry in listed if entry.path.startswith(CONFIGS)]
        with tempfile.TemporaryDirectory() as folder:
            paths = {
                name: self._do(f"read {name}", lambda name=name: self._client.download_artifacts(run_id, name, folder))
                for name in names
            }
            return {name: Path(path).read_text(encoding="utf-8") for name, path in paths.items()}

    def _do(self, what: str, action: "Callable[[], Any]") -> Any:
        try:
            return insist(action, self.counters, tries=3, pause_s=0.5)
        except Exception as error:
            raise TrackingError(f"MLflow registry '{self.model}': cannot {what}: {first_line(error)}") from error
