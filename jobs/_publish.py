"""A snapshot's way out: storage, then the registry, then the endpoint. Joins rooms that do not know each other."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import ray

from jobs._publish_gate import PublishGate
from pipeline.config import RunConfig, UserError, config_digest
from pipeline.storage import open_storage
from pipeline.tracking import TrackingError, code_tags
from serve import client
from serve.policy import Policy

logger = logging.getLogger(__name__)
TRACKER_DEADLINE_S = 120


class Publisher:
    """One run's publisher; an actor. Replays are harmless: storage, registry and endpoint know versions by digest."""

    def __init__(self, cfg: dict, tracker: Any, dashboard_url: str | None) -> None:
        self.cfg = RunConfig.model_validate(cfg)
        self.tracker, self.dashboard_url = tracker, dashboard_url
        self.store = open_storage(self.cfg.storage)
        self.gate = PublishGate(self.cfg, self._ask)
        self.events: list[dict[str, object]] = []

    def publish(
        self, folder: str, version: int, digest: str, step: int, measured: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Stores, registers and (with publish.endpoint) serves a snapshot; with publish.gate only where `measured`, its
        measurement, passes the gate. "latest" and the aliases move only after
        the thing they name is confirmed. Storage, registry or endpoint failing never stops a training: it is logged
        and kept in the history, and the snapshot stays in the run's folder."""
        event: dict[str, object] = {"version": version, "digest": digest, "folder": folder, "at": time.time()}
        try:
            number, event["uri"] = self._keep(folder, version, digest, step)
            event["registered"] = number
            if self.dashboard_url:
                event |= self._gated(measured, folder, version, digest, step, number)
        except (UserError, *client.FAILURES, ray.exceptions.RayError) as error:
            logger.error("version %d was not published: %s", version, error)
            event |= {"swapped": False, "reason": f"{type(error).__name__}: {error}"}
        self.events.append(event)
        return event

    def _keep(self, folder: str, version: int, digest: str, step: int) -> tuple[int, str]:
        key = f"{self.cfg.run.name}/snapshots"
        self.store.put_folder(folder, f"{key}/v{version}")
        self.store.set_latest(key, f"v{version}")
        uri = self.store.uri(f"{key}/v{version}")
        registered = self._ask(
            "register_version",
            uri,
            version=version,
            digest=digest,
            step=step,
            config_digest=config_digest(self.cfg),
            tags=code_tags(),  # a resumed run may go on with other code
        )
        self._ask("set_alias", "candidate", registered.number)
        return registered.number, uri

    def _gated(self, measured: Mapping[str, object] | None, folder: str, *identity: Any) -> dict[str, object]:
        version, digest, _, number = identity
        if self.cfg.publish.gate and (reason := self.gate.refusal(number, version, digest, measured)):
            return {"swapped": False, "refused": reason}
        return self._serve(folder, *identity)

    def _serve(self, folder: str, version: int, digest: str, step: int, number: int) -> dict[str, object]:
        policy = Policy(version, folder, digest, self.cfg.serve.swap_mode)
        deadline = client.change_deadline_s(self.cfg.serve.drain_deadline_s)
        report = client.swap(str(self.dashboard_url), policy, deadline)
        self._ask("set_alias", "champion", number)
        self._ask("log_step", step, {"endpoint_version": version, "endpoint_swap_seconds": report.seconds})
        return {"swapped": True, "seconds": report.seconds}

    def _ask(self, method: str, *args: object, **kwargs: object) -> Any:
        try:
            return ray.get(getattr(self.tracker, method).remote(*args, **kwargs), timeout=TRACKER_DEADLINE_S)
        except ray.exceptions.RayTaskError as error:
            raise TrackingError(str(error.cause)) from error
        except ray.exceptions.GetTimeoutError as error:
            raise TrackingError(f"waited {TRACKER_DEADLINE_S} s for the tracker to {method}") from error

    def unmeasured_champion(self, asked: str) -> dict[str, object] | None:
        """See `PublishGate.unmeasured_champion`; raises where registry or storage fail, so that it is asked again."""
        return self.gate.unmeasured_champion(asked)

    def keep_measurement(self, measured: Mapping[str, object]) -> None:
        """Keeps the champion's measurement for the decisions to come."""
        self.gate.keep(measured)

    def history(self) -> list[dict[str, object]]:
        """What was published, in order, and whether the endpoint took it."""
        return self.events
