"""Registered versions as policies that can be served: looked up, fetched to a local copy, kept as long as needed."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.serve import results_folder
from pipeline.config import RunConfig, UserError
from pipeline.evaluation.model import local_copy
from serve.policy import Policy, fingerprint
from serve.promotion.kept import copy_name, prune

if TYPE_CHECKING:
    from pipeline.tracking import RegisteredVersion, Registry

SNAPSHOT = re.compile(r"v(\d+)(?:-([0-9a-f]{8,64}))?")


@dataclass(frozen=True)
class Release:
    """A registered version and the policy that serves it from its local copy."""

    registered: "RegisteredVersion"
    policy: Policy

    @property
    def number(self) -> int:
        """The registry's own count."""
        return self.registered.number

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.registered.name} {self.number} ({self.policy.fingerprint})"


def open_registry(cfg: RunConfig) -> "Registry":
    """The registry of `tracking.registered_model`. UserError when the store does not answer."""
    from pipeline.tracking import Registry, tracking_uri

    return Registry.open(tracking_uri(cfg), cfg.tracking.registered_model)


def find(registry: "Registry", text: str) -> "RegisteredVersion":
    """The version that a registry number (`8`), an alias, a snapshot's version (`v8`) or mark (`v8-1a2b3c4d`) names.
    UserError where there is none, or where several were registered for the snapshot's version."""
    from pipeline.tracking import TrackingError

    try:
        if snapshot := SNAPSHOT.fullmatch(text):
            return _only(registry.of_snapshot(int(snapshot[1]), snapshot[2] or ""), text)
        found = registry.get(int(text)) if text.isdigit() else registry.resolve(text)
    except TrackingError as error:
        raise UserError(f"version '{text}' cannot be looked up: {error}") from None
    if found is None:
        raise UserError(f"'{registry.name}' has no version with alias '{text}'; publish one first, or give a number")
    return found


def _only(found: "Sequence[RegisteredVersion]", text: str) -> "RegisteredVersion":
    if not found:
        raise UserError(f"no registered version is of the snapshot {text}; a registry number is written without the v")
    if len(found) > 1:
        numbers = ", ".join(f"{one.number} ({fingerprint(one.version, one.digest)})" for one in found)
        raise UserError(f"several registered versions are of the snapshot {text}: give one of the numbers {numbers}")
    return found[0]


def release(cfg: RunConfig, registered: "RegisteredVersion", *, check: bool = True) -> Release:
    """The version with a local copy; storage is asked only where there is none, so that the way back does not depend on
    it. With `check` every tensor is read and compared with the manifest (replicas do so again before they serve it).
    UserError for a damaged copy, or another digest than the registry's."""
    from pipeline.weights import verify

    folder = results_folder(cfg) / copy_name(registered.version, registered.digest)
    local_copy(registered, cfg, folder)
    if check:
        verify(folder, expect=registered.digest)
    os.utime(folder)  # the latest to be used is the last to be deleted
    return Release(registered, Policy(registered.version, str(folder), registered.digest, cfg.serve.swap_mode))


def tidy(cfg: RunConfig, registry: "Registry", served: Iterable[str]) -> list[Path]:
    """Deletes old local copies: those of no alias, which no replica serves (`served`: folders), but for the newest
    `gate.keep_copies`."""
    home = results_folder(cfg)
    aliased = (registry.get(number) for number in set(registry.aliases().values()))
    in_use = [home / copy_name(found.version, found.digest) for found in aliased]
    return prune(home, [*in_use, *served], cfg.gate.keep_copies)
