"""Reads a running endpoint's own figures over a stretch of time, beside its users' traffic or traffic of ours."""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from pipeline.config import UserError, bearer, check_address, check_key, server_root
from serve import InferenceOptimizer
from serve.inference.request import Message, messages_of
from serve.inference.result import InferenceFailed, InferenceResult
from serve.observation.figures import finished
from serve.observation.samples import Sample, read_sample

READ_S = 0.5  # between two readings
ANSWER_S = 30.0  # for one of them
PATIENCE_S = 3600.0  # for `--requests`
PATIENT_FAILURES = 20  # more than replies
Part = TypeVar("Part", bound=dict[str, Any] | list[Any])


@dataclass(frozen=True)
class Row:
    """One request of ours. `at`: seconds after the beginning; None: as soon as a client is free."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    at: float | None = None


@dataclass
class Observed:
    """What was read (`samples`), what the engine runs with, of how many `replicas`; and our own replies, by the order
    in which they were sent, with seconds between their pieces, and the errors of those that failed."""

    effective: dict[str, Any]
    replicas: int
    samples: list[Sample] = field(default_factory=list)
    sent: list[Row] = field(default_factory=list)
    replies: dict[int, InferenceResult] = field(default_factory=dict)
    gaps: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)  # their token ids


def read_rows(path: Path) -> list[Row]:
    """The requests in a JSONL file: `prompt` or `messages`, and `max_tokens` and `at` where wanted. UserError with the
    line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--prompts {path} cannot be read ({error}); give a JSONL file of prompts") from None
    rows = [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise UserError(f"--prompts {path} holds no prompts")
    if len({row.at is None for row in rows}) > 1:
        raise UserError(f"--prompts {path}: give `at` to all prompts or to none")
    return rows


def _row(line: str, where: str) -> Row:
    try:
        data = json.loads(line)
        given = {name: data.pop(name, None) for name in ("prompt", "messages", "max_tokens", "at")}
        if data or (given["prompt"] is None) == (given["messages"] is None):
            raise ValueError("a row has prompt or messages, and perhaps max_tokens and at")
        numbers = [given[name] for name in ("max_tokens", "at") if given[name] is not None]
        if any(isinstance(number, bool) or number < 0 for number in numbers):
            raise ValueError("max_tokens and at are numbers of at least 0")
        return Row(messages_of(given["prompt"] or given["messages"]), given["max_tokens"], given["at"])
    except (ValueError, TypeError, AttributeError, UserError) as error:
        raise UserError(f"{where}: {error}") from None


async def observe(
    url: str, key: str | None, seconds: float, requests: int | None, rows: list[Row], clients: int
) -> Observed:
    """Reads for `seconds`, or until `requests` have ended. `rows` are sent meanwhile, each at its time, or over and
    over by `clients` clients. UserError where the endpoint does not answer or the key is not of the scope admin."""
    check_address(url, "--endpoint")
    check_key(key, "the key (--key or DECS_API_KEY)")
    root = server_root(url)
    async with httpx.AsyncClient(base_url=root, headers=bearer(key), timeout=ANSWER_S, trust_env=False) as http:
        effective = await _part(http, "/admin/effective-config", "effective", dict)
        replicas = await _part(http, "/admin/version", "replicas", list)
        observed = Observed(effective, max(1, len(replicas)))
        async with InferenceOptimizer(base_url=root, api_key=key) as optimizer:
            traffic = asyncio.create_task(_send(optimizer, observed, rows, clients))
            try:
                await _read(http, observed, seconds, requests, traffic)
            finally:
                traffic.cancel()
                await asyncio.gather(traffic, return_exceptions=True)
        await _tokenise(http, observed)
    return observed


async def _read(
    http: httpx.AsyncClient, observed: Observed, seconds: float, requests: int | None, traffic: asyncio.Task[None]
) -> None:
    """UserError where `requests` were to end, and did not within `PATIENCE_S`."""
    end = time.monotonic() + (seconds if requests is None else PATIENCE_S)
    while True:
        observed.samples.append(await _sample(http))
        if traffic.done():
            traffic.result()  # what went wrong with it, if anything
        ended = finished(observed.samples)
        if requests is not None and (ended >= requests or (observed.sent and traffic.done())):
            return
        if time.monotonic() >= end:
            break
        await asyncio.sleep(READ_S)
    if requests is not None:
        raise UserError(
            f"only {ended} of {requests} requests ended at {http.base_url} within {PATIENCE_S:g} s; give --seconds"
        )


async def _send(optimizer: InferenceOptimizer, observed: Observed, rows: list[Row], clients: int) -> None:
    if not rows:
        return
    if rows[0].at is not None:
        await asyncio.gather(*(_at_its_time(optimizer, observed, row) for row in rows))
        return
    endless = itertools.cycle(rows)
    await asyncio.gather(*(_client(optimizer, observed, endless) for _ in range(clients)))


async def _client(optimizer: InferenceOptimizer, observed: Observed, rows: Iterator[Row]) -> None:
    for row in rows:
        await _one(optimizer, observed, row)
        if len(observed.failures) > len(observed.replies) + PATIENT_FAILURES:
            raise UserError(f"most requests fail: {observed.failures[-1]}")


async def _at_its_time(optimizer: InferenceOptimizer, observed: Observed, row: Row) -> None:
    await asyncio.sleep(row.at or 0.0)
    await _one(optimizer, observed, row)


async def _one(optimizer: InferenceOptimizer, observed: Observed, row: Row) -> None:
    number = len(observed.sent)
    observed.sent.append(row)
    last = None
    try:
        async for piece in optimizer.stream(list(row.messages), max_tokens=row.max_tokens):
            now = time.monotonic()
            if piece.result is not None:
                observed.replies[number] = piece.result
            elif last is not None:
                observed.gaps.append(now - last)
            last = now
    except (InferenceFailed, TimeoutError) as error:
        observed.failures.append(str(error))


async def _tokenise(http: httpx.AsyncClient, observed: Observed) -> None:
    """The prompts' token ids, as the endpoint makes them; each different prompt is asked for once."""
    if not observed.sent:
        return
    served, known = await _part(http, "/v1/models", "data", list), {}
    if not served or not isinstance(served[0], dict) or "id" not in served[0]:
        raise UserError(_foreign(_address(http, "/v1/models"), "names no model"))
    model = served[0]["id"]
    for row in observed.sent:
        text = json.dumps(row.messages)
        if text not in known:
            asked = {"model": model, "messages": list(row.messages), "add_generation_prompt": True}
            known[text] = await _tokens(http, asked)
        observed.prompts.append(known[text])


async def _tokens(http: httpx.AsyncClient, asked: dict[str, Any]) -> list[int]:
    address = _address(http, "/tokenize")
    try:
        reply = await http.post(address, json=asked)
    except httpx.HTTPError as error:
        raise UserError(f"{address} does not answer any more ({error}): try again") from None
    if not reply.is_success:
        raise UserError(f"{address} answers {reply.status_code}: {reply.text[:200]}")
    return _held(reply, address, "tokens", list)


async def _sample(http: httpx.AsyncClient) -> Sample:
    route = "/metrics"
    try:
        sample = read_sample((await _get(http, route)).text, time.monotonic())
    except ValueError:
        raise UserError(_foreign(_address(http, route), "answers no page of figures")) from None
    if not sample.values:
        raise UserError(_foreign(_address(http, route), "answers a page without figures"))
    return sample


async def _part(http: httpx.AsyncClient, route: str, name: str, kind: type[Part]) -> Part:
    return _held(await _get(http, route), _address(http, route), name, kind)


def _held(reply: httpx.Response, address: str, name: str, kind: type[Part]) -> Part:
    """What a JSON reply holds under `name`. UserError where it holds nothing of that kind."""
    try:
        told = reply.json()
    except ValueError:
        raise UserError(_foreign(address, "answers no JSON")) from None
    found = told.get(name) if isinstance(told, dict) else None
    if not isinstance(found, kind):
        raise UserError(_foreign(address, f"answers without '{name}'"))
    return found


def _foreign(address: str, what: str) -> str:
    return f"{address} {what}: it is no endpoint of this project; correct --endpoint"


def _address(http: httpx.AsyncClient, route: str) -> str:
    return str(http.base_url).rstrip("/") + route


async def _get(http: httpx.AsyncClient, route: str) -> httpx.Response:
    address = _address(http, route)
    try:
        reply = await http.get(address)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(f"no endpoint answers at {address} ({error}); correct --endpoint") from None
    if not reply.is_success:
        key = "give --key, or set DECS_API_KEY, to one with the scope admin"
        why = key if reply.status_code in (401, 403) else "it is no endpoint of this project"
        raise UserError(f"{address} answers {reply.status_code}: {why}")
    return reply
