"""A snapshot's way out: storage, then the registry, then the endpoint. Joins rooms that do not know each other."""

import logging
import time
from typing import Any

import ray

from pipeline.config import RunConfig, config_digest
from pipeline.storage import open_storage
from serve import client

logger = logging.getLogger(__name__)
TRACKER_DEADLINE_S = 120


class Publisher:
    """One run's publisher; an actor. Replays are harmless: storage, registry and endpoint know versions by digest."""

    def __init__(self, cfg: dict, tracker: Any, dashboard_url: str | None) -> None:
        self.cfg = RunConfig.model_validate(cfg)
        self.tracker, self.dashboard_url = tracker, dashboard_url
        self.store = open_storage(self.cfg.storage)
        self.events: list[dict[str, object]] = []

    def publish(self, folder: str, version: int, digest: str, step: int) -> dict[str, object]:
        """Stores, registers and (with publish.endpoint) serves a snapshot. "latest" and the aliases move only after
        the thing they name is confirmed; an endpoint that refuses is counted and the run goes on."""
        key = f"{self.cfg.run.name}/snapshots/v{version}"
        uri = self.store.put_folder(folder, key)
        self.store.set_latest(f"{self.cfg.run.name}/snapshots", f"v{version}")
        registered = self._ask(
            "register_version",
            uri,
            version=version,
            digest=digest,
            step=step,
            config_digest=config_digest(self.cfg),
        )
        self._ask("set_alias", "candidate", registered.number)
        event: dict[str, object] = {"version": version, "digest": digest, "uri": uri, "registered": registered.number}
        if self.dashboard_url:
            event |= self._serve(folder, version, digest, step, registered.number)
        self.events.append(event)
        return event

    def _serve(self, folder: str, version: int, digest: str, step: int, number: int) -> dict[str, object]:
        started = time.monotonic()
        try:
            report = client.swap(
                self.dashboard_url, version, folder, digest, self._deadline(), mode=self.cfg.serve.swap_mode
            )
        except (client.SwapRefused, client.SwapTimeout) as error:
            logger.error("the endpoint did not take version %d: %s", version, error)
            return {"swapped": False, "reason": str(error), "at": time.time()}
        self._ask("set_alias", "champion", number)
        self._ask("log_step", step, {"endpoint_version": version, "endpoint_swap_seconds": report.seconds})
        return {"swapped": True, "seconds": time.monotonic() - started, "at": time.time()}

    def _deadline(self) -> float:
        return self.cfg.serve.drain_deadline_s + 60

    def _ask(self, method: str, *args: object, **kwargs: object) -> Any:
        return ray.get(getattr(self.tracker, method).remote(*args, **kwargs), timeout=TRACKER_DEADLINE_S)

    def history(self) -> list[dict[str, object]]:
        """What was published, in order, and whether the endpoint took it."""
        return self.events
