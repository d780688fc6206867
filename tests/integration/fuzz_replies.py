"""What every reply of an endpoint must be like, whatever was asked."""

import json
from collections import Counter
from dataclasses import dataclass, field

import requests

PATIENCE_S = 180.0  # the longest reply, on a busy machine
DEAD_END = "Internal server error"  # vLLM's words for a grammar that leaves the engine no token
GRAMMARS = (b"response_format", b"structured_outputs", b'"text"', b'"tools"')
ERROR_KEYS = {"message", "type", "param", "code"}


@dataclass
class Fuzzer:
    """Sends requests and keeps what was wrong with their replies."""

    url: str
    statuses: Counter = field(default_factory=Counter)  # (path, status)
    faults: list = field(default_factory=list)
    dead_ends: int = 0  # 500s to requests whose grammar the vocabulary could not follow

    def __post_init__(self):
        self._session = requests.Session()
        self._session.trust_env = False

    @property
    def sent(self):
        return sum(self.statuses.values())

    def send(self, method, path, headers, body, allowed=None):
        """One request; `allowed` statuses, if they are known."""
        try:
            reply = self._session.request(
                method, self.url + path, data=body, headers=headers, timeout=PATIENCE_S, allow_redirects=False
            )
            status, why = reply.status_code, fault_of(reply)
        except requests.RequestException as error:
            status, why = 0, f"no reply: {error}"
        if allowed and status not in allowed:
            why = why or f"status {status}, not one of {allowed}: {reply.text[:300]}"
        self.statuses[path, status] += 1
        if why and DEAD_END in why and any(name in body for name in GRAMMARS):
            self.dead_ends += 1
        elif why:
            self.faults.append(f"{method} {path} {body[:600]!r} ({len(body)} bytes): {why}")


def fault_of(reply):
    """None, or what is wrong with a reply."""
    kind = reply.headers.get("content-type", "").split(";")[0]
    if kind == "text/event-stream":
        return _fault_of_stream(reply.text)
    if kind != "application/json":
        return f"status {reply.status_code} with a body of type {kind!r}: {reply.text[:300]!r}"
    try:
        body = json.loads(reply.content, parse_constant=_no_constant)
    except ValueError as error:
        return f"status {reply.status_code} with a body that is no JSON ({error}): {reply.text[:300]!r}"
    if reply.status_code < 400:
        return None if isinstance(body, dict) and "error" not in _set(body) else f"a success that is none: {body}"
    return fault_of_error(reply.status_code, body)


def fault_of_error(status, body):
    """OpenAI's shape, and no 5xx but the one of admission."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not set(error) >= ERROR_KEYS or not error["message"] or not error["type"]:
        return f"status {status} with a body that is no OpenAI-style error: {str(body)[:300]}"
    if error["code"] != status:
        return f"status {status}, but the body says {error['code']}"
    if status >= 500 and (status, error["type"]) != (503, "overloaded_error"):
        return f"status {status}: {error['message'][:300]}"
    return None


def _fault_of_stream(text):
    """Events are JSON, none is an error of the server, and the last one says that it is."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    ended = bool(events) and events[-1] == "[DONE]"
    for event in events[: len(events) - ended]:
        try:
            body = json.loads(event, parse_constant=_no_constant)
        except ValueError:
            return f"an event that is no JSON: {event[:300]}"
        if error := _set(body).get("error"):
            code = error.get("code") if isinstance(error, dict) else None
            if not isinstance(code, int) or code >= 500:
                return f"a stream with the error {error}"
        ended |= body.get("type") in ("response.completed", "response.incomplete", "response.failed")
    return None if ended else f"a stream that does not end: {text[-300:]!r}"


def _set(body):
    return {name: value for name, value in body.items() if value is not None}


def _no_constant(name):
    raise ValueError(f"{name} is no JSON number")
