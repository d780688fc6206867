"""Which weights a replica serves, and how a reply says so."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.config import UserError

DIGEST_SHOWN = 8
KEYS = ("version", "folder", "digest", "mode")
MODES = ("wait", "keep")
_FINGERPRINT = re.compile(r'"system_fingerprint":"([^"]*)"')
# Quotes inside a JSON text are escaped, so this never matches what a model wrote.
_OTHER_MARK = re.compile(r',"system_fingerprint":(?:null|"[^"]*")')


@dataclass(frozen=True)
class Policy:
    """A snapshot to serve: its version, its local folder, its digest (sha256 hex) and how to swap to it."""

    version: int
    folder: str
    digest: str
    mode: str = "wait"

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.version, self.digest)

    def same_weights(self, other: "Policy | None") -> bool:
        """True when `other` names the same version of the same weights, wherever its folder lies."""
        return other is not None and (self.version, self.digest) == (other.version, other.digest)

    def as_config(self) -> dict[str, object]:
        """The deployment's `user_config` that asks for this policy."""
        return {key: getattr(self, key) for key in KEYS}


def policy_from(config: Mapping[str, object]) -> Policy:
    """The policy a `user_config` names. UserError when a key is missing, unknown or of the wrong kind."""
    if unknown := sorted(set(config) - set(KEYS)):
        raise UserError(f"user_config has the unknown key {unknown[0]!r}; known: {', '.join(KEYS)}")
    for key, kind in (("version", int), ("folder", str), ("digest", str)):
        if not isinstance(config.get(key), kind):
            raise UserError(f"user_config.{key} must be of type {kind.__name__}, not {config.get(key)!r}")
    if config.get("mode", "wait") not in MODES:
        raise UserError(f"user_config.mode must be one of {', '.join(MODES)}, not {config['mode']!r}")
    return Policy(**config)


def fingerprint(version: int, digest: str) -> str:
    """What a reply carries as `system_fingerprint`: `v<version>-<first eight signs of the digest>`."""
    return f"v{version}-{digest[:DIGEST_SHOWN]}"


def stamp_chunk(chunk: str, mark: str) -> str:
    """Puts `mark` first into the JSON object of a server-sent event, in place of the engine's own fingerprint.

    Other events (`[DONE]`) stay as they are.
    """
    head = "data: {"
    if not chunk.startswith(head):
        return chunk
    body = chunk[len(head) :]
    if '"system_fingerprint":' in body:
        body = _OTHER_MARK.sub("", body)
    return f'{head}"system_fingerprint":"{mark}",{body}'


def read_mark(item: object) -> str | None:
    """The mark in a chunk, in the first of a list of chunks, or in a whole reply; None when it has none."""
    if isinstance(item, list):
        return read_mark(item[0]) if item else None
    if isinstance(item, str):
        found = _FINGERPRINT.search(item)
        return found.group(1) if found else None
    return getattr(item, "system_fingerprint", None)
