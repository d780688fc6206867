"""What a reply's usage says of tokens, and the figures that Prometheus is told."""

import asyncio
import json

import pytest
from prometheus_client import REGISTRY

from serve.token_counters import PHASES, count_tokens
from serve.usage import output_tokens, prompt_tokens, reasoning_tokens
from tests.serve.test_serve_asgi import call, plain, stream

USAGE = {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}
DETAILS = {"completion_tokens_details": {"reasoning_tokens": 5}, "prompt_tokens_details": {"cached_tokens": 3}}


def told():
    return [REGISTRY.get_sample_value("decs_tokens_total", {"phase": phase}) or 0 for phase in PHASES]


def added(before):
    return [now - then for now, then in zip(told(), before, strict=True)]


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        (USAGE | DETAILS, (7, 5, 9)),
        (USAGE, (7, 0, 9)),
        ({"input_tokens": 2, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}}, (2, 1, 3)),
        ({}, (None, 0, None)),
    ],
)
def test_usage(usage, found):
    text = json.dumps({"choices": [{"text": '"reasoning_tokens": 99'}], "usage": usage}).encode()
    assert (prompt_tokens(text), reasoning_tokens(text), output_tokens(text)) == found


def test_counts_by_phase():
    before = told()
    count_tokens(10, 3, 8)
    assert added(before) == [10, 3, 5]


@pytest.mark.parametrize("streamed", [False, True])
def test_each_reply_is_counted_once(streamed):
    last = {"id": "x", "choices": [], "usage": USAGE | DETAILS}
    app = stream(b'{"id":"x","choices":[{}]}', json.dumps(last).encode()) if streamed else plain(last)
    before = told()
    asyncio.run(call(app, hides=streamed))
    assert added(before) == [7, 5, 4]


def test_a_failed_reply_counts_nothing():
    before = told()
    asyncio.run(call(plain({"error": {}}, status=500)))
    assert added(before) == [0, 0, 0]
