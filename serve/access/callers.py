"""Who sent a request, and what follows from that: the limits that hold and the cache and priority that are used."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve.access.errors import Refusal
from serve.access.keys import Key, find_key
from serve.access.limits import Clock, Rates
from serve.access.settings import AccessSettings

ANONYMOUS = "anonymous"
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)


@dataclass
class Caller:
    """The sender of a request. `priority` is the earliest a request of this caller may ask for (lower runs earlier)."""

    name: str
    scope: str
    priority: int | None
    rates: Rates
    salt: str | None = None

    def charge(self, tokens: int) -> None:
        """Counts the tokens that a finished request used, prompt and reply, against the caller's limit."""
        self.rates.charge(tokens)

    def may(self, scope: str) -> bool:
        return scope == self.scope or self.scope == "admin"


class Callers:
    """Finds the caller of a request. Buckets outlive a change of settings, so that it gives nobody a fresh limit."""

    def __init__(self, settings: AccessSettings, clock: Clock = time.monotonic, now: Clock = time.time) -> None:
        self._clock, self._now = clock, now
        self._rates: dict[str, Rates] = {}
        self.update(settings)

    def update(self, settings: AccessSettings) -> None:
        """Follows other settings from the next request on."""
        self._settings = settings
        kept = {}
        for key in (*settings.keys, None):
            digest = key.digest if key else ""
            kept[digest] = self._rates.get(digest) or Rates(self._clock)
            kept[digest].limit(*_limits(key, settings))
        self._rates = kept

    def find(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller by the header Authorization. Raises Refusal (401), in the same words whatever is wrong with it."""
        settings = self._settings
        if not settings.keys:
            return Caller(ANONYMOUS, "admin", None, self._rates[""])
        key = find_key(settings.keys, _bearer(headers), self._now())
        if key is None:
            raise Refusal(401, "a valid API key is needed: send Authorization: Bearer KEY", headers=_CHALLENGE)
        salt = salt_of(key) if settings.tenant_salts else None
        return Caller(key.name, key.scope, key.priority or 0, self._rates[key.digest], salt)


def _bearer(headers: Mapping[bytes, bytes]) -> str:
    scheme, _, secret = headers.get(b"authorization", b"").strip().partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def _limits(key: Key | None, settings: AccessSettings) -> tuple[float | None, float | None]:
    """A replica's share of the key's own limits, else of the endpoint's."""
    shares = []
    for name in ("requests_per_minute", "tokens_per_minute"):
        limit = getattr(key, name, None) or getattr(settings, name)
        shares.append(limit / settings.replicas if limit else None)
    return shares[0], shares[1]


def salt_of(key: Key) -> str:
    """The name of a key's own prefix cache (64 hex signs). It tells nothing about the key."""
    return hashlib.sha256(f"cache:{key.digest}".encode()).hexdigest()


def apply_caller(body: dict[str, Any], caller: Caller) -> bool:
    """Puts the caller's cache salt and priority into a generation's `body` in place; True when that changed anything.

    A client's own salt is replaced: with it one tenant could ask for the cache of another. Its own priority counts
    unless it would run before what the key allows. Raises Refusal for a priority that is no whole number.
    """
    before = (body.get("cache_salt"), body.get("priority"))
    if caller.salt:
        body["cache_salt"] = caller.salt
    own = body.get("priority")
    if own is not None and type(own) is not int:
        raise Refusal(400, "priority must be a whole number", param="priority")
    if caller.priority is not None and (own is not None or caller.priority):
        body["priority"] = max(caller.priority, caller.priority if own is None else own)
    return before != (body.get("cache_salt"), body.get("priority"))


def ask_for_usage(body: dict[str, Any]) -> bool:
    """A stream must say how many tokens it used, for limits and figures: asks for that in place. True when the client
    itself had not asked, so that the event which says it is not meant for it.

    Responses say it anyway, and the engine refuses options beside what is no stream or no object: those stay.
    """
    options = body.get("stream_options")
    if body.get("stream") is not True or not isinstance(options or {}, dict):
        return False
    if options and options.get("include_usage") is True:
        return False
    # Without include_usage the engine does not heed continuous_usage_stats; with it, it would.
    rest = {name: value for name, value in (options or {}).items() if name != "continuous_usage_stats"}
    body["stream_options"] = rest | {"include_usage": True}
    return True
