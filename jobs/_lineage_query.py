"""What was asked: a reply's id, a mark, a version number or an alias. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.config import UserError, nearest
from pipeline.tracking.registry import Alias, RegisteredVersion
from pipeline.weights.manifest import Manifest
from serve.policy import fingerprint

MARK = re.compile(r"v(\d+)-([0-9a-f]{8})")
# An engine's prefix (chatcmpl-, cmpl-, resp_), then one mark or several joined by +, then the request's own id.
REPLY_ID = re.compile(r"(?:[a-z]+[-_])*(v\d+-[0-9a-f]{8}(?:\+v\d+-[0-9a-f]{8})*)(?:-.*)?", re.DOTALL)
VERSION = re.compile(r"v?(\d+)")


@dataclass(frozen=True)
class Query:
    """One version that is looked for: by `alias`, or by `version` and perhaps the beginning of its digest."""

    text: str
    version: int | None = None
    digest: str = ""
    alias: str = ""


@dataclass(frozen=True)
class Found:
    """A version and where its weights are kept. `number` and `run_id` are the registry's, None where it has none.
    `parent` is what the manifest says once it was read (`manifest_read`): None there is a start."""

    version: int
    digest: str
    uri: str
    step: int
    config_digest: str
    run_id: str | None = None
    number: int | None = None
    parent: int | None = None
    manifest_read: bool = False

    @property
    def mark(self) -> str:
        return fingerprint(self.version, self.digest)


def parse(text: str) -> list[Query]:
    """The versions that `text` names: several where several weights made one reply. UserError for anything else."""
    if whole := REPLY_ID.fullmatch(text.strip()):
        return [Query(found[0], int(found[1]), found[2]) for found in MARK.finditer(whole[1])]
    if number := VERSION.fullmatch(text.strip()):
        return [Query(text, int(number[1]))]
    if text in [*Alias]:
        return [Query(text, alias=text)]
    raise UserError(
        f"'{text}' is no reply id, mark (v8-1a2b3c4d), version number or alias{nearest(text, [*Alias])}; a reply's id "
        "names its weights only when the endpoint of this pipeline gave it"
    )


def from_registry(registered: RegisteredVersion) -> Found:
    """A registered version as found."""
    one = registered
    return Found(one.version, one.digest, one.uri, one.step, one.config_digest, one.run_id, one.number)


def from_manifest(uri: str, manifest: Manifest) -> Found:
    """A snapshot folder as found."""
    made = manifest
    return Found(made.version, made.digest, uri, made.step, made.config_digest, None, None, made.parent, True)


def merged(registered: Iterable[Found], local: Iterable[Found]) -> list[Found]:
    """Each (version, digest) of a run once, the registry's word before a folder's, newest first as given."""
    known: dict[tuple[int, str, str | None], Found] = {}
    for one in registered:
        known.setdefault((one.version, one.digest, one.run_id), one)
    weights = {(one.version, one.digest) for one in known.values()}
    for one in local:
        if (one.version, one.digest) not in weights:
            known.setdefault((one.version, one.digest, None), one)
    return list(known.values())


def choose(query: Query, known: list[Found], aliases: dict[str, int]) -> tuple[Found, list[Found]]:
    """The version asked for and others that fit as well (the same number in other runs). UserError when there is none,
    or when the version exists but with other weights."""
    if query.alias:
        number = aliases.get(query.alias)
        fitting = [one for one in known if number is not None and one.number == number]
        if not fitting:
            raise UserError(f"the alias '{query.alias}' points at nothing in this registry")
        return fitting[0], []
    same = [one for one in known if one.version == query.version]
    fitting = [one for one in same if one.digest.startswith(query.digest)]
    if fitting:
        return fitting[0], fitting[1:]
    if same:
        others = ", ".join(dict.fromkeys(one.mark for one in same))
        raise UserError(
            f"version {query.version} is known, but with other weights ({others}): none have a digest that begins with "
            f"{query.digest}"
        )
    raise UserError(
        f"no version {query.version} in the registry or the results folder; give --config or tracking.uri and "
        "storage.uri of the run that made it"
    )


def with_parent(found: Found, manifest: Manifest) -> Found:
    """`found` with what only the manifest says."""
    return replace(found, parent=manifest.parent, manifest_read=True)
