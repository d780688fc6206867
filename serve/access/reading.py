"""Reads a request's JSON body: never more than the limit, never for longer than the deadline, and strictly."""

import asyncio
import json
from typing import Any

from serve.access.errors import Message, Receive, Refusal

DEADLINE_S = 30.0  # for the whole body to arrive
BODY = "body"  # in the `scope["state"]` of a request with a JSON body: that body, parsed, checked and completed
MAX_DEPTH = 64  # nested objects and arrays; what walks a body below recurses
MAX_INTEGER = 1 << 63  # the engine's transport and tensors take 64 bits


class ClientLeft(Exception):
    """The client went away before its body was whole."""


def check_headers(headers: dict[bytes, bytes], max_bytes: int) -> None:
    """Refuses by the headers alone what is no plain JSON, or says that it is too long."""
    if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
        raise Refusal(415, "the body must be JSON: send the header content-type: application/json")
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        raise Refusal(415, "compressed bodies are not accepted: leave out content-encoding")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)


async def read_body(receive: Receive, max_bytes: int, deadline_s: float = DEADLINE_S) -> bytes:
    """The whole body. Refuses one longer than `max_bytes` as soon as that shows, also where it came in chunks."""
    body = bytearray()
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                message: Message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                body += message.get("body", b"")
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        close = [(b"connection", b"close")]
        raise Refusal(408, f"the body was not there within {deadline_s:g} s", headers=close) from None


def given_first(messages: list[Message], receive: Receive) -> Receive:
    """`receive` that gives `messages`, which it uses up, and then whatever comes: the news that the client has left."""

    async def receiving() -> Message:
        return messages.pop(0) if messages else await receive()

    return receiving


def _too_large(max_bytes: int) -> Refusal:
    close = [(b"connection", b"close")]  # the rest of the body is not read
    return Refusal(413, f"the body is larger than {max_bytes} bytes; send less", headers=close)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Refuses anything else, and what parsers disagree about or break on: other encodings,
    doubled names, NaN and infinity, halves of surrogate pairs, integers above 64 bits, deep nesting."""
    try:
        text = body.decode("utf-8")
        data = _STRICT.decode(text)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Refusal(400, f"the body is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise Refusal(400, "the body must be a JSON object")
    _check_values(data)
    if "\\ud" in text or "\\uD" in text:
        _check_text(data)
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {doubled[:80]!a} occurs twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _check_values(data: dict[str, Any]) -> None:
    """Depth and integers, level by level: no recursion, one visit a value."""
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        below = []
        for node in level:
            for value in node.values() if isinstance(node, dict) else node:
                if isinstance(value, dict | list):
                    below.append(value)
                elif isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER:
                    raise Refusal(400, "the body holds an integer that does not fit into 64 bits")
        if not below:
            return
        level = below
    raise _too_deep()


def _too_deep() -> Refusal:
    return Refusal(400, f"the body nests objects and arrays deeper than {MAX_DEPTH} levels")


def _check_text(data: dict[str, Any]) -> None:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(400, "the body holds half of a surrogate pair (\\ud800 to \\udfff), which is no text") from None
