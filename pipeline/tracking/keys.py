"""Make configs fit what MLflow accepts: flat keys of few signs, short values, small batches. Pure.

Limits are MLflow's: 250 signs a key, 100 parameters or tags and 1,000 metrics a call. Values are cut at 500 signs,
which older servers also take; the whole config is kept as an artifact beside them.
"""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import TypeVar

MAX_KEY = 250
MAX_VALUE = 500
MAX_TAG = 1000
PARAMS_PER_CALL = 100
METRICS_PER_CALL = 1000

_ODD = re.compile(r"[^\w./\- ]", re.ASCII)
T = TypeVar("T")


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def clean_key(key: str) -> str:
    """A key that MLflow accepts. A key that has to be changed ends in a digest of the original, so that two keys never
    become one and a resumed run finds the same name again."""
    segments = [part if part.strip(". ") else "_" for part in _ODD.sub("_", key).split("/")]
    cleaned = "/".join(segments)
    if cleaned == key and len(key) <= MAX_KEY and posixpath.normpath(key) == key:
        return key
    return f"{cleaned[: MAX_KEY - 9]}-{_short_digest(key)}"


def cut(value: str, limit: int = MAX_VALUE) -> str:
    """`value`, or its beginning with a mark that tells the full length and digest (a change past the cut shows)."""
    if len(value) <= limit:
        return value
    mark = f" [cut: {len(value)} characters, sha256 {_short_digest(value)}, whole in config.yaml]"
    return value[: limit - len(mark)] + mark


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def flatten(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and text values, as one would write them on the command line; lists become JSON."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def as_params(config: Mapping[str, object]) -> dict[str, str]:
    """What is logged of a config: every leaf once, under a clean key, cut where it is long."""
    return {clean_key(key): cut(value) for key, value in flatten(config)}


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """`items` in lists of at most `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def ranges(numbers: Iterable[int]) -> str:
    """`1-3,7` for {1, 2, 3, 7}."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(_span(run) for run in runs)


def _span(run: Sequence[int]) -> str:
    return str(run[0]) if run[0] == run[1] else f"{run[0]}-{run[1]}"


def from_ranges(text: str) -> set[int]:
    """The numbers that `ranges` wrote down."""
    found: set[int] = set()
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
