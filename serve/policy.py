"""Which weights a replica serves, and how a reply says so."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.config import UserError

DIGEST_SHOWN = 8
MARK_HEADER = "x-policy-version"  # of every reply: its fingerprint
KEYS = ("version", "folder", "digest", "mode")
MODES = ("wait", "keep")
EVENT_END = b"\n\n"
# Quotes inside a JSON text are escaped, so these never match what a model wrote.
_OTHER_MARK = re.compile(rb',"system_fingerprint":\s*(?:null|"[^"]*")')
_EVENT = re.compile(rb"^data: \{(?!\})", re.MULTILINE)


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
        """The part of a deployment's `user_config` that asks for this policy."""
        return {key: getattr(self, key) for key in KEYS}


@dataclass(frozen=True)
class Wanted:
    """What a deployment's `user_config` asks for: one policy for all replicas, perhaps another one for those whose rank
    is below `canary_replicas`, and the access settings as plain data."""

    policy: Policy
    canary: Policy | None = None
    canary_replicas: int = 0
    access: Mapping[str, object] | None = None

    def for_rank(self, rank: int) -> Policy:
        """The policy of the replica of this rank."""
        return self.canary if self.canary and rank < self.canary_replicas else self.policy

    @property
    def access_digest(self) -> str:
        """Identity of the access settings, so that a replica can tell which ones it follows."""
        return hashlib.sha256(json.dumps(self.access or {}, sort_keys=True).encode()).hexdigest()[:DIGEST_SHOWN]

    def as_config(self) -> dict[str, object]:
        """The `user_config` that asks for this."""
        config = self.policy.as_config()
        if self.canary:
            config["canary"] = self.canary.as_config() | {"replicas": self.canary_replicas}
        if self.access is not None:
            config["access"] = dict(self.access)
        return config


def wanted_from(config: Mapping[str, object]) -> Wanted:
    """What a `user_config` asks for. UserError when a key is missing, unknown or of the wrong kind."""
    policy = policy_from({key: value for key, value in config.items() if key not in ("canary", "access")})
    access, canary = config.get("access"), config.get("canary")
    for key, value in (("access", access), ("canary", canary)):
        if value is not None and not isinstance(value, Mapping):
            raise UserError(f"user_config.{key} must be a mapping, not {value!r}")
    if canary is None:
        return Wanted(policy, access=access)
    replicas = canary.get("replicas")
    if type(replicas) is not int or replicas < 1:
        raise UserError(f"user_config.canary.replicas must be a whole number from 1, not {replicas!r}")
    named = {key: value for key, value in canary.items() if key != "replicas"}
    return Wanted(policy, policy_from(named, "user_config.canary"), replicas, access)


def policy_from(config: Mapping[str, object], where: str = "user_config") -> Policy:
    """The policy that `config` names. UserError (it names `where`) when a key is missing, unknown or of the wrong
    kind."""
    if unknown := sorted(set(config) - set(KEYS)):
        raise UserError(f"{where} has the unknown key {unknown[0]!r}; known: {', '.join(KEYS)}")
    for key, kind in (("version", int), ("folder", str), ("digest", str)):
        if type(config.get(key)) is not kind:
            raise UserError(f"{where}.{key} must be of type {kind.__name__}, not {config.get(key)!r}")
    if config.get("mode", "wait") not in MODES:
        raise UserError(f"{where}.mode must be one of {', '.join(MODES)}, not {config['mode']!r}")
    return Policy(**config)


def fingerprint(version: int, digest: str) -> str:
    """What a reply carries as `system_fingerprint`: `v<version>-<first eight signs of the digest>`."""
    return f"v{version}-{digest[:DIGEST_SHOWN]}"


def stamp_event(chunk: bytes, mark: str) -> bytes:
    """Puts `mark` first into the JSON object of each server-sent event in `chunk`, in place of the engine's own
    fingerprint. Other events (`[DONE]`) stay as they are."""
    if b'"system_fingerprint":' in chunk:
        chunk = _OTHER_MARK.sub(b"", chunk)
    stamped = b'data: {"system_fingerprint":"%s",' % mark.encode()
    is_one = chunk.find(b"\n") == len(chunk) - len(EVENT_END) and chunk.startswith(b'data: {"')
    return stamped + chunk[len(b"data: {") :] if is_one else _EVENT.sub(stamped, chunk)  # nearly always one


def stamp_json(body: bytes, mark: str) -> bytes:
    """`body`, one JSON object, with `mark` as its `system_fingerprint`; anything else stays as it is."""
    if not body.startswith(b"{") or body.startswith(b"{}"):
        return body
    if b'"system_fingerprint":' in body:
        body = _OTHER_MARK.sub(b"", body)
    return b'{"system_fingerprint":"%s",' % mark.encode() + body[1:]
