"""Whether a run's publisher may serve a version: its measurement against the present champion's."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from jobs._gate import kept_measurements
from jobs._released import release
from pipeline.config import RunConfig
from pipeline.evaluation.tally import Measurement
from serve.policy import fingerprint
from serve.promotion.check import Decision
from serve.promotion.decision import decide, limits_of
from serve.promotion.record import rows_of, tags_of

logger = logging.getLogger(__name__)
Ask = Callable[..., Any]  # (method of the tracker, its arguments) -> its answer


class PublishGate:
    """Keeps measurements and decides. `ask` calls the run's tracker."""

    def __init__(self, cfg: RunConfig, ask: Ask) -> None:
        self.cfg, self.ask, self.kept = cfg, ask, kept_measurements(cfg)

    def unmeasured_champion(self, asked: str) -> dict[str, object] | None:
        """Folder, version and digest of the champion where nothing is known of it; None where there is no need."""
        champion = self.ask("served_version")
        if champion is None or self.kept.get(champion.digest, asked) is not None:
            return None
        policy = release(self.cfg, champion).policy
        return {"folder": policy.folder, "version": policy.version, "digest": policy.digest}

    def keep(self, measured: Mapping[str, object]) -> None:
        """Keeps a measurement made elsewhere."""
        self.kept.put(Measurement.from_plain(measured))

    def refusal(self, number: int, version: int, digest: str, measured: Mapping[str, object] | None) -> str | None:
        """Why the registered version `number` is not to be served, None where it is. Kept on it and in the run."""
        champion = self.ask("served_version")
        if champion is not None and (champion.version, champion.digest) == (version, digest):
            return None  # a replay
        if measured is None or "failed" in measured:
            decision, reason = None, f"it was not measured: {(measured or {}).get('failed', 'nothing came')}"
        else:
            decision = self._decision(Measurement.from_plain(measured), version, digest, champion)
            reason = decision.reason
        passed = decision is not None and decision.passed
        checks = decision.checks if decision else ()
        against = fingerprint(champion.version, champion.digest) if champion else "none"
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.ask("tag_version", number, tags_of("passed" if passed else "refused", reason, checks, at, against))
        if checks:
            self.ask("log_table", rows_of(checks), f"gate/v{version}.json")
        if not passed:
            logger.warning("version %d is not served: %s", version, reason)
        return None if passed else reason

    def _decision(self, measured: Measurement, version: int, digest: str, champion: Any) -> Decision:
        if (measured.version, measured.digest) != (version, digest):
            raise RuntimeError(f"version {version} came with the measurement of version {measured.version}")
        self.kept.put(measured)
        if champion is None:
            return decide(measured, None, limits_of(self.cfg), first=True)
        base, name = self.kept.get(champion.digest, measured.asked), fingerprint(champion.version, champion.digest)
        return decide(measured, base, limits_of(self.cfg), name=name)
