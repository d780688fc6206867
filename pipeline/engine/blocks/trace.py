r"""A stream of requests as JSON lines, one a line, in order of arrival: what came in, and how long replies were.

    {"prompt_tokens": 900, "output_tokens": 300, "shared": [["system", 512], ["chat-7", 200]]}
    {"prompt_ids": [5, 6, 7], "output_tokens": 3}
    {"prompt_ids": [5, 6, 7], "output_ids": [8, 9]}

`shared` names the texts that the prompt begins with, in order, each with how many of its first tokens; prompts that
begin with the same tokens of the same texts begin alike. What the prompt has beyond them is its own. `reply` names the
reply, so that a later prompt of the conversation may hold it: `"reply": "chat-7.1"`, then
`"shared": [["chat-7", 200], ["chat-7.1", 300]]`. `salt`: as the request's cache_salt; others' salts share nothing.
With `prompt_ids` there are no lengths and no names. Empty lines are passed over.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config.errors import UserError, nearest

FIELDS = ("prompt_tokens", "prompt_ids", "output_tokens", "output_ids", "shared", "reply", "salt")
LONGEST = 1 << 22  # tokens of one request; more is a slip of the writer
SPAN = 1 << 32  # token ids of one named text: more than a text has


@dataclass(frozen=True)
class TracedRequest:
    """One request: its prompt and its reply as token ids, not empty, and whose prefix cache it uses."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    salt: str | None = None

    @property
    def tokens(self) -> int:
        """Of prompt and reply together."""
        return len(self.prompt) + len(self.output)


@dataclass
class Texts:
    """Token ids for texts known by name and length alone: each name has ids that no other name has."""

    starts: dict[object, int] = field(default_factory=dict)

    def ids(self, name: object, count: int) -> range:
        """The first `count` token ids of the text called `name`."""
        start = self.starts.setdefault(name, (len(self.starts) + 1) * SPAN)
        return range(start, start + count)


def read_trace(path: Path) -> list[TracedRequest]:
    """The requests of a file. UserError, with the line's number, for the first line that is none."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the trace {path} cannot be read ({error}); give a file of JSON lines") from None
    texts, found = Texts(), []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(_request(json.loads(line, object_pairs_hook=_unique), number, texts))
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path} line {number}: {error}") from None
    if not found:
        raise UserError(f"the trace {path} holds no request; write one a line")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{twice}' is given twice; give it once")
    return found


def _request(line: object, number: int, texts: Texts) -> TracedRequest:
    if not isinstance(line, dict):
        raise ValueError('a request is a mapping such as {"prompt_tokens": 900, "output_tokens": 300}')
    for name in line:
        if name not in FIELDS:
            raise ValueError(f"unknown field '{name}'{nearest(name, FIELDS)}")
    if ("prompt_ids" in line) == ("prompt_tokens" in line):
        raise ValueError("give either prompt_ids or prompt_tokens")
    if ("output_ids" in line) == ("output_tokens" in line):
        raise ValueError("give either output_ids or output_tokens")
    salt = line.get("salt")
    if salt is not None and not isinstance(salt, str):
        raise ValueError(f"salt is {salt!r}; it must be a text")
    return TracedRequest(_prompt(line, number, texts), _output(line, number, texts), salt)


def _prompt(line: Mapping[str, Any], number: int, texts: Texts) -> tuple[int, ...]:
    if "prompt_ids" in line:
        if "shared" in line:
            raise ValueError("shared does nothing beside prompt_ids; remove it")
        return _ids(line["prompt_ids"], "prompt_ids")
    total = _count(line["prompt_tokens"], "prompt_tokens")
    ids: list[int] = []
    for name, count in _named(line.get("shared", [])):
        ids += texts.ids(name, count)
    if len(ids) > total:
        raise ValueError(f"shared texts have {len(ids)} tokens, more than prompt_tokens ({total})")
    return (*ids, *texts.ids(("prompt", number), total - len(ids)))


def _output(line: Mapping[str, Any], number: int, texts: Texts) -> tuple[int, ...]:
    reply = line.get("reply")
    if "output_ids" in line:
        if reply is not None:
            raise ValueError("reply does nothing beside output_ids; remove it")
        return _ids(line["output_ids"], "output_ids")
    if reply is not None and (not isinstance(reply, str) or not reply):
        raise ValueError(f"reply is {reply!r}; it must be the reply's name")
    return tuple(texts.ids(reply or ("reply", number), _count(line["output_tokens"], "output_tokens")))


def _named(shared: object) -> Iterator[tuple[str, int]]:
    for piece in shared if isinstance(shared, list) else [shared]:
        if not (isinstance(piece, list) and len(piece) == 2 and isinstance(piece[0], str) and piece[0]):
            raise ValueError(f'shared holds {piece!r}; it must hold pairs such as ["system", 512]')
        yield piece[0], _count(piece[1], f"shared '{piece[0]}'")


def _count(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LONGEST:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from 1 to {LONGEST}")
    return value


def _ids(value: object, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= LONGEST:
        raise ValueError(f"{name} must be a list of token ids, not empty")
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < SPAN:
            raise ValueError(f"{name} holds {item!r}; it must hold token ids")
    return tuple(value)


def trace_lines(samples: Iterable[tuple[Iterable[int], Iterable[int]]]) -> Iterator[str]:
    """One line of a trace for each (prompt ids, reply ids)."""
    for prompt, reply in samples:
        yield json.dumps({"prompt_ids": list(prompt), "output_ids": list(reply)}) + "\n"
