"""API keys: made, kept as hashes in a file that only its owner reads, and found again."""

import hashlib
import hmac
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pipeline.config import UserError, nearest

PREFIX = "sk-"
SECRET_BYTES = 32
SCOPES = ("infer", "admin")


@dataclass(frozen=True)
class Key:
    """What is known of one key. `digest` is the SHA-256 (hex) of the key: keys are random and long, so no slow hash is
    needed. Times are seconds since 1970. Limits and priority are the key's own; None: those of the endpoint."""

    name: str
    digest: str
    scope: str
    created: float
    expires: float | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    priority: int | None = None  # lower runs earlier

    def is_valid(self, now: float) -> bool:
        return self.expires is None or now < self.expires


def digest_of(secret: str) -> str:
    """SHA-256 (hex) of a key as a client sends it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    """A new key: `sk-` and 32 random bytes in URL-safe letters."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def find_key(keys: Iterable[Key], secret: str, now: float) -> Key | None:
    """The valid key that `secret` is. Looks at all keys, each in constant time."""
    digest, found = digest_of(secret), None
    for key in keys:
        if hmac.compare_digest(key.digest, digest) and key.is_valid(now):
            found = key
    return found


def key_from(entry: object, where: str) -> Key:
    """A key from plain data. UserError, which never repeats a digest, names what is wrong."""
    if not isinstance(entry, Mapping):
        raise UserError(f"{where} must be a mapping, not {type(entry).__name__}")
    known = [field.name for field in fields(Key)]
    if unknown := sorted(set(entry) - set(known)):
        raise UserError(f"{where} has the unknown entry '{unknown[0]}'{nearest(str(unknown[0]), known)}")
    if missing := [name for name in ("name", "digest", "scope", "created") if name not in entry]:
        raise UserError(f"{where} has no '{missing[0]}'")
    name, digest = entry["name"], entry["digest"]
    if not isinstance(name, str) or not name or len(name) > 80 or not name.isprintable():
        raise UserError(f"{where}: name must be text of 1 to 80 printable signs")
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise UserError(f"{where}: digest must be a SHA-256 in hex; keys themselves are never kept")
    if entry["scope"] not in SCOPES:
        raise UserError(f"{where}: scope must be one of {', '.join(SCOPES)}, not {entry['scope']!r}")
    for name in ("created", "expires", "requests_per_minute", "tokens_per_minute", "priority"):
        _check_number(name, entry.get(name), where)
    return Key(**entry)


def _check_number(name: str, value: object, where: str) -> None:
    if value is None and name != "created":
        return
    kinds = int if name == "priority" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UserError(f"{where}: {name} must be a {'whole ' if name == 'priority' else ''}number, not {value!r}")
    if name.endswith("_per_minute") and not 0 < value < float("inf"):
        raise UserError(f"{where}: {name} must be above 0, not {value!r}; leave it out for no limit")


def keys_from(entries: object, where: str) -> tuple[Key, ...]:
    """Keys from plain data. UserError for a wrong entry and for two with one name or one digest."""
    if not isinstance(entries, list):
        raise UserError(f"{where} must hold a list of keys")
    keys = tuple(key_from(entry, f"{where}, key {number}") for number, entry in enumerate(entries, 1))
    names = [key.name for key in keys]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{where} holds two keys with the name '{doubled}'; rename one")
    if len({key.digest for key in keys}) < len(keys):
        raise UserError(f"{where} holds one key under two names; remove one")
    return keys


def as_data(key: Key) -> dict[str, Any]:
    """Plain data of a key, without what is not set."""
    return {name: value for name, value in asdict(key).items() if value is not None}


# --- the file --------------------------------------------------------------------------------------------------------


def read_keys(path: str | Path) -> tuple[Key, ...]:
    """The keys of a file. UserError when it is missing, no key file, or readable by others than its owner."""
    file = Path(path)
    try:
        with file.open(encoding="utf-8") as handle:
            mode = stat.S_IMODE(os.fstat(handle.fileno()).st_mode)
            text = handle.read()
    except FileNotFoundError:
        raise UserError(
            f"no key file at {file}: `python -m jobs.keys add --name NAME --file {file}` makes one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"cannot read the key file {file}: {reason}") from None
    if mode & 0o077:
        raise UserError(f"the key file {file} is open to other users (mode {mode:o}): run `chmod 600 {file}` first")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the key file {file} is not valid JSON: {error}") from None
    return keys_from(data.get("keys") if isinstance(data, dict) else None, f"the key file {file}")


def write_keys(path: str | Path, keys: Iterable[Key]) -> None:
    """Replaces the file in one step; only its owner may read it. UserError when it cannot be written."""
    file = Path(path)
    text = json.dumps({"keys": [as_data(key) for key in keys]}, indent=2) + "\n"
    scratch = None
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # made with mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(scratch, file)
    except OSError as error:
        if scratch:
            Path(scratch).unlink(missing_ok=True)
        raise UserError(f"cannot write the key file {file}: {error.strerror}") from None


def made_key(name: str, scope: str, *, lifetime_s: float | None = None, **own: Any) -> tuple[str, Key]:
    """A new key and what is kept of it; `own`: its limits and priority. UserError for a wrong value."""
    secret, created = new_secret(), time.time()
    expires = None if lifetime_s is None else created + lifetime_s
    entry = {"name": name, "digest": digest_of(secret), "scope": scope, "created": created, "expires": expires, **own}
    return secret, key_from({key: value for key, value in entry.items() if value is not None}, "the new key")
