"""How much a key may ask for, and how many requests a replica holds: token buckets and places."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]
ROUNDING = 1e-9  # of a unit: sums of small refills miss whole numbers by less


class Bucket:
    """A token bucket: holds at most `per_minute` units, full at first, and refills at that rate.

    In any `t` seconds it lets at most `per_minute * (1 + t / 60)` units through, of which the first part is the burst.
    `take` needs a unit to be there; `charge` takes what was used afterwards and may leave a debt, which refuses until
    it is refilled.
    """

    def __init__(self, per_minute: float, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._set(per_minute)
        self._level, self._seen = self._size, clock()

    def _set(self, per_minute: float) -> None:
        self._rate = per_minute / 60
        self._size = max(per_minute, 1.0)  # a share of less than one a minute still lets single requests through

    def limit(self, per_minute: float) -> None:
        """Changes the rate; what was used stays used."""
        self._refill()
        full = self._size
        self._set(per_minute)
        self._level = min(self._level + max(self._size - full, 0.0), self._size)

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._size, self._level + max(now - self._seen, 0.0) * self._rate)
        self._seen = now

    def wait_s(self, units: float = 1.0) -> float:
        """Seconds until `units` are there; 0.0 when they are."""
        self._refill()
        lacks = units - self._level
        return lacks / self._rate if lacks > ROUNDING else 0.0

    def take(self, units: float = 1.0) -> float:
        """Takes `units` and returns 0.0, or takes nothing and returns the seconds until they will be there."""
        wait = self.wait_s(units)
        if not wait:
            self._level -= units
        return wait

    def charge(self, units: float) -> None:
        """Takes `units` whether they are there or not."""
        self._refill()
        self._level -= units


class Rates:
    """The buckets of one key: requests and tokens a minute, each None for no limit."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None

    def limit(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        """Sets or changes the limits; buckets keep what was used."""
        self._requests = self._changed(self._requests, requests_per_minute)
        self._tokens = self._changed(self._tokens, tokens_per_minute)

    def _changed(self, bucket: Bucket | None, per_minute: float | None) -> Bucket | None:
        if per_minute is None:
            return None
        if bucket is None:
            return Bucket(per_minute, self._clock)
        bucket.limit(per_minute)
        return bucket

    def admit(self) -> tuple[str, int] | None:
        """None when one more request may run, else which limit says no (`requests` or `tokens`) and the whole seconds
        to wait. Only a request that may run is counted."""
        if self._tokens and (wait := self._tokens.wait_s()):
            return "tokens", max(math.ceil(wait), 1)
        if self._requests and (wait := self._requests.take()):
            return "requests", max(math.ceil(wait), 1)
        return None

    def charge(self, tokens: int) -> None:
        """Counts the tokens of a finished request."""
        if self._tokens and tokens > 0:
            self._tokens.charge(tokens)


class Places:
    """Counts the requests inside; each holds its place until it has ended, however it ends."""

    def __init__(self) -> None:
        self.inside = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
