"""The model registry as the truth of what is deployed: numbered versions, and the aliases that point at them.

A registered version is known by (run, version, digest): registering a replayed snapshot again returns the version that
is there.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlparse

from pipeline.config import UserError, nearest
from pipeline.tracking.connection import TrackingError, connect, first_line, insist
from pipeline.tracking.keys import MAX_TAG, clean_key, cut

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

T = TypeVar("T")
PAGE = 200
OWN_TAGS = {"version", "digest", "step", "config_digest"}


class Alias(StrEnum):
    """What a registered version is to the endpoint."""

    CANDIDATE = "candidate"
    CHAMPION = "champion"
    PREVIOUS = "previous"


@dataclass(frozen=True)
class RegisteredVersion:
    """`number` is the registry's own count; `version`, `digest` and `step` are those of the snapshot at `uri`."""

    name: str
    number: int
    version: int
    digest: str
    step: int
    uri: str
    run_id: str
    config_digest: str


class Registry:
    """One registered model. Usable without a run, so that the endpoint can ask what it should serve."""

    def __init__(self, client: "MlflowClient", name: str, *, tries: int = 3, pause_s: float = 0.5) -> None:
        self._client, self.name = client, name
        self._tries, self._pause_s = tries, pause_s
        self.counters: Counter[str] = Counter()

    @classmethod
    def open(cls, uri: str, name: str, deadline_s: float = 120) -> "Registry":
        """Connect to the store at `uri`; UserError when it does not answer in time."""
        return cls(connect(uri, deadline_s), name)

    def register(
        self,
        source: str,
        run_id: str,
        *,
        version: int,
        digest: str,
        step: int,
        config_digest: str,
        tags: Mapping[str, str] | None = None,
    ) -> RegisteredVersion:
        """Register the snapshot folder at `source` (a path or a URI). TrackingError when the store does not take it."""
        own = {"version": version, "digest": digest, "step": step, "config_digest": config_digest}
        every = {**{clean_key(k): cut(v, MAX_TAG) for k, v in (tags or {}).items()}, "snapshot_uri": source, **own}
        texts = {key: str(value) for key, value in every.items()}

        def find_or_create() -> "ModelVersion":
            self._ensure_model()
            if found := self._find(run_id, str(version), digest):
                return found
            place = self._registrable(source, run_id, texts)
            return self._client.create_model_version(self.name, place, run_id=run_id, tags=texts, await_creation_for=30)

        return view(self._do("register a version", find_or_create))

    def get(self, number: int) -> RegisteredVersion:
        """The version the registry counts as `number`; TrackingError when there is none."""
        return view(self._do("read a version", lambda: self._client.get_model_version(self.name, str(number))))

    def entries(self) -> "list[ModelVersion]":
        """Every registered version as the store keeps it, also those that were not made here."""
        quoted, found, token = self.name.replace("'", "''"), [], None
        while True:
            page = self._do(
                "list its versions",
                lambda token=token: self._client.search_model_versions(
                    f"name = '{quoted}'", max_results=PAGE, page_token=token
                ),
            )
            found += page
            token = page.token
            if not token:
                return found

    def of_snapshot(self, version: int, digest: str = "") -> list[RegisteredVersion]:
        """Those of a snapshot's version whose digest begins with `digest`, newest first."""
        fitting = [
            one
            for one in self.entries()
            if one.tags.get("version") == str(version) and one.tags.get("digest", "").startswith(digest)
        ]
        return sorted(map(view, fitting), key=lambda one: -one.number)

    def aliases(self) -> dict[str, int]:
        """Alias -> registry number; empty while nothing is registered."""

        def read() -> dict[str, int]:
            try:
                return {k: int(v) for k, v in self._client.get_registered_model(self.name).aliases.items()}
            except Exception as error:
                if getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                    return {}
                raise

        return self._do("read the aliases", read)

    def resolve(self, alias: str) -> RegisteredVersion | None:
        """The version that `alias` points at, None where it points at nothing."""
        number = self.aliases().get(_alias(alias))
        return None if number is None else self.get(number)

    def served(self) -> RegisteredVersion | None:
        """The champion: what the endpoint must answer with. None before the first one."""
        return self.resolve(Alias.CHAMPION)

    def set_alias(self, alias: str, number: int) -> None:
        """Point `alias` at a version; naming the present champion again changes nothing. Where the champion moves, the
        old one becomes `previous`; so pointing the champion at `previous` exchanges the two.

        `previous` moves first, so that a crash in between leaves a way back, and moves back where the champion cannot
        be set; in an exchange the champion moves first, so that the version that is left never has both aliases.
        """
        alias = _alias(alias)
        current = self.aliases()
        if current.get(alias) == number:
            return
        if alias != Alias.CHAMPION or Alias.CHAMPION not in current:
            self._point(alias, number)
        elif current.get(Alias.PREVIOUS) == number:
            self._point(Alias.CHAMPION, number)
            self._point(Alias.PREVIOUS, current[Alias.CHAMPION])
        else:
            self._move_champion(number, current)

    def _move_champion(self, number: int, current: Mapping[str, int]) -> None:
        self._point(Alias.PREVIOUS, current[Alias.CHAMPION])
        try:
            self._point(Alias.CHAMPION, number)
        except TrackingError as error:
            if Alias.PREVIOUS in current:
                try:
                    self._point(Alias.PREVIOUS, current[Alias.PREVIOUS])
                except TrackingError as second:
                    error.add_note(str(second))
            raise

    def tag(self, number: int, tags: Mapping[str, str]) -> None:
        """Tag a version; a later value of the same tag replaces the earlier one."""
        for key, value in tags.items():
            clean, short = clean_key(key), cut(str(value), MAX_TAG)
            self._do(
                f"set tag {clean}",
                lambda clean=clean, short=short: self._client.set_model_version_tag(
                    self.name, str(number), clean, short
                ),
            )

    def _point(self, alias: str, number: int) -> None:
        self._do(
            f"set alias {alias}",
            lambda: self._client.set_registered_model_alias(self.name, str(alias), str(number)),
        )

    def _ensure_model(self) -> None:
        try:
            self._client.create_registered_model(self.name)
        except Exception as error:
            if getattr(error, "error_code", None) != "RESOURCE_ALREADY_EXISTS":
                raise

    def _find(self, run_id: str, version: str, digest: str) -> "ModelVersion | None":
        quoted = self.name.replace("'", "''")
        for found in self._client.search_model_versions(f"name = '{quoted}' AND run_id = '{run_id}'"):
            if (found.tags.get("version"), found.tags.get("digest")) == (version, digest):
                return found
        return None

    def _registrable(self, source: str, run_id: str, tags: Mapping[str, str]) -> str:
        """A source that a server accepts. It refuses folders outside the run's artifacts, so a snapshot in a folder is
        registered through a small note among them; tag `snapshot_uri` holds the place itself."""
        if urlparse(source).scheme not in ("", "file"):
            return source
        folder = f"registered/version_{tags['version']}_{tags['digest'][:8]}"
        self._client.log_text(run_id, json.dumps(dict(tags), indent=1), f"{folder}/snapshot.json")
        return f"runs:/{run_id}/{folder}"

    def _do(self, what: str, action: Callable[[], T]) -> T:
        try:
            return insist(action, self.counters, tries=self._tries, pause_s=self._pause_s)
        except Exception as error:
            self.counters["failed_registry_calls"] += 1
            raise TrackingError(f"MLflow registry '{self.name}': cannot {what}: {first_line(error)}") from error


def _alias(alias: str) -> Alias:
    try:
        return Alias(alias)
    except ValueError:
        raise UserError(f"there is no alias '{alias}' for a served model{nearest(alias, [*Alias])}") from None


def view(found: "ModelVersion") -> RegisteredVersion:
    """What the store keeps of a version, as ours. TrackingError for one that was not made here."""
    tags = found.tags
    missing = OWN_TAGS - tags.keys()
    if missing:
        raise TrackingError(
            f"version {found.version} of registered model '{found.name}' was not made here (no tag "
            f"{', '.join(sorted(missing))}); choose another tracking.registered_model"
        )
    return RegisteredVersion(
        name=found.name,
        number=int(found.version),
        version=int(tags["version"]),
        digest=tags["digest"],
        step=int(tags["step"]),
        uri=tags.get("snapshot_uri", found.source),
        run_id=found.run_id,
        config_digest=tags["config_digest"],
    )
