"""What a client saw of one request, and what was wrong with it. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from jobs._bench_requests import Shape

PROXY_ERRORS = (500, 502, 503, 504)
MARK = re.compile(r"v(\d+)-[0-9a-f]{8}")


class Fault(StrEnum):
    """A broken promise, by its name in the result."""

    FAILED = "failed"
    TRUNCATED = "truncated"
    MIXED_UNMARKED = "mixed_unmarked"
    WITHOUT_VERSION = "without_version"
    BROKEN_STREAM = "broken_streams"
    RESENT = "resent"
    MISCOUNTED = "miscounted"
    ID_WITHOUT_MARK = "id_without_mark"
    UNKNOWN_VERSION = "unknown_version"
    STALE = "stale"


@dataclass
class Reply:
    """Times in seconds of one clock; `first` when the first token came. `marks`: the mark of each chunk, equal
    neighbours once (None: a chunk without one); a whole reply is one chunk. `tokens` were counted in the reply, `usage`
    is what it states. `done`: a stream that ended with [DONE], or a whole body. `closed`: the connection broke off."""

    shape: Shape
    phase: str
    began: float
    ended: float = 0.0
    first: float | None = None
    arrivals: list[float] = field(default_factory=list)  # of each chunk with tokens
    status: int = 0
    header: str | None = None
    marks: list[str | None] = field(default_factory=list)
    id: str | None = None
    finish: str | None = None
    tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    usage: int | None = None
    done: bool = False
    closed: bool = False
    error: str = ""
    resent: str = ""  # why it was sent a second time: the first brought not one byte of a reply

    @property
    def unanswered(self) -> bool:
        """Not one byte of a reply came: the connection broke, or the proxy answered for a replica that is gone.
        OpenAI's own client then sends the request again."""
        return (self.closed and not self.status) or (self.status in PROXY_ERRORS and self.header is None)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def saw(self, mark: str | None) -> None:
        """Notes a chunk's mark."""
        if not self.marks or self.marks[-1] != mark:
            self.marks.append(mark)


@dataclass(frozen=True)
class Confirmed:
    """From `at` (seconds, the replies' clock) on, every replica held `version`."""

    at: float
    version: int


@dataclass(frozen=True)
class Context:
    """What replies are judged by: the marks that may occur, when versions were confirmed, and the time from the kill of
    a replica to its end in which a stream may break (None: none was killed)."""

    marks: frozenset[str]
    confirmed: Sequence[Confirmed] = ()
    kill: tuple[float, float] | None = None


def faults(reply: Reply, context: Context | None) -> dict[Fault, str]:
    """Each broken promise with a text. A reply that never came, or an error, is `failed` and nothing else.

    Without a `context` the server promises no marks: only whether the reply is whole counts.
    """
    kill = context.kill if context else None
    if broken := _not_whole(reply, kill):
        return broken
    if reply.resent and not overlaps(reply, kill):
        return {Fault.FAILED: f"answered only when sent again: {reply.resent}"}
    if context is None:
        return _content(reply)
    found = _content(reply) | _marks(reply, context)
    if reply.resent:
        found[Fault.RESENT] = reply.resent
    if stale := _stale(reply, context.confirmed):
        found[Fault.STALE] = stale
    return found


def _not_whole(reply: Reply, kill: tuple[float, float] | None) -> dict[Fault, str]:
    if reply.status != 200:
        return {Fault.FAILED: reply.error or f"status {reply.status}"}
    if reply.error and not reply.closed:  # an error in words, not a connection that broke off
        return {Fault.FAILED: reply.error}
    if not reply.done and reply.shape.stream and reply.marks:
        text = reply.error or "the stream ended without [DONE]"
        return {Fault.BROKEN_STREAM if overlaps(reply, kill) else Fault.TRUNCATED: text}
    if reply.error or not reply.done:
        return {Fault.FAILED: reply.error or "the reply ended before its first token"}
    return {}


def overlaps(reply: Reply, kill: tuple[float, float] | None) -> bool:
    """Whether the reply was under way between the kill of a replica and its end."""
    return kill is not None and reply.began <= kill[1] and reply.ended >= kill[0]


def _content(reply: Reply) -> dict[Fault, str]:
    found: dict[Fault, str] = {}
    if reply.finish in (None, "abort"):
        found[Fault.TRUNCATED] = "no finish_reason" if reply.finish is None else "finish_reason is abort"
    elif reply.tokens < reply.shape.max_tokens:
        found[Fault.TRUNCATED] = f"{reply.tokens} of {reply.shape.max_tokens} tokens"
    if reply.usage != reply.tokens:
        found[Fault.MISCOUNTED] = f"usage says {reply.usage} tokens, {reply.tokens} were counted"
    return found


def _marks(reply: Reply, context: Context) -> dict[Fault, str]:
    """Header, id and chunks. A chunk may differ from the header only by further marks joined with `+`, and from then
    on all do."""
    if reply.header is None or None in reply.marks or not reply.marks:
        where = "the header" if reply.header is None else "a chunk"
        return {Fault.WITHOUT_VERSION: f"{where} has no mark"}
    found: dict[Fault, str] = {}
    before = reply.header
    for mark in reply.marks:
        if mark != before and not str(mark).startswith(f"{before}+"):
            shown = ", ".join(map(str, reply.marks))
            found[Fault.MIXED_UNMARKED] = f"header {reply.header}, chunks {shown}"
            break
        before = mark
    every = {part for mark in (reply.header, *reply.marks) for part in str(mark).split("+")}
    if unknown := sorted(every - context.marks):
        found[Fault.UNKNOWN_VERSION] = f"{unknown[0]} was never asked for"
    if first_mark(reply) not in (reply.id or ""):
        found[Fault.ID_WITHOUT_MARK] = f"id {reply.id}, header {reply.header}"
    return found


def first_mark(reply: Reply) -> str:
    """The mark of the weights that the reply began with."""
    return str(reply.header or "").split("+")[0]


def _stale(reply: Reply, confirmed: Sequence[Confirmed]) -> str:
    """A request sent after a version was confirmed must not be answered by an older one."""
    newest = max((one.version for one in confirmed if one.at <= reply.began), default=None)
    found = MARK.fullmatch(first_mark(reply))
    if newest is None or found is None or int(found[1]) >= newest:
        return ""
    return f"answered by {found[0]} after version {newest} was confirmed"


def declared(replies: Iterable[Reply]) -> int:
    """Replies that say they were made by several weights."""
    return sum(any("+" in str(mark) for mark in reply.marks) for reply in replies)


def count(judged: Iterable[dict[Fault, str]]) -> dict[str, int]:
    """How often each fault occurred, all of them named."""
    found = Counter(fault for one in judged for fault in one)
    return {fault.value: found[fault] for fault in Fault}
