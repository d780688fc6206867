"""Readings of an endpoint over a window, beside its users' traffic or ours, against a server that only counts."""

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

import jobs._observe as observing
from jobs._observe import Row, observe
from jobs._profile import profile_of
from pipeline.config import UserError
from serve.inference.request import messages_of
from tests.http_servers import running

EFFECTIVE = {"device": "cpu", "max_num_seqs": 4, "max_model_len": 512, "block_size": 4, "kv_cache_blocks": 16}
METRICS = """\
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 2
# TYPE vllm:request_success counter
vllm:request_success_total {done}
"""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args): ...

    def answer(self, text, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        server = self.server
        if server.key and self.headers.get("authorization") != f"Bearer {server.key}":
            self.send_error(401)
        elif self.path == "/metrics":
            server.done += server.users
            self.answer(METRICS.format(done=server.done), "text/plain")
        else:
            self.answer(json.dumps(ANSWERS[self.path]))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize":
            self.answer(json.dumps({"tokens": [ord(sign) for sign in asked["messages"][0]["content"]]}))
            return
        self.server.done += 1
        events = [
            {"choices": [{"delta": {"content": "a"}}]},
            {"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
        ]
        self.answer("".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n")


ANSWERS = {
    "/admin/effective-config": {"effective": EFFECTIVE},
    "/admin/version": {"replicas": [{}]},
    "/v1/models": {"data": [{"id": "policy"}]},
}


@contextmanager
def serving(users=0, key=None):
    """`users`: requests of theirs that end between two readings."""
    with running(Handler, done=100, users=users, key=key) as (_, url):
        yield url


def rows(*texts, at=None):
    return [Row(messages_of(text), 2, at) for text in texts]


def observed(url, **options):
    usual = {"key": None, "seconds": 0.2, "requests": None, "rows": [], "clients": 1}
    return asyncio.run(observe(url, **usual | options))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(observing, "READ_S", 0.02)


def test_users_traffic_until_enough_has_ended():
    with serving(users=5) as url:
        found = observed(url, requests=12)
    assert found.samples[-1].values["vllm:request_success_total"] == 100 + 5 * len(found.samples)
    assert len(found.samples) == 4 and found.sent == [] and found.replicas == 1
    assert profile_of(found, None, {}).batch_occupancy == 0.5


def test_our_own_requests_over_and_over():
    with serving() as url:
        found = observed(url + "/v1", rows=rows("aaaab", "aaaac"), clients=2)
    assert len(found.sent) > 4 and len(found.replies) >= len(found.sent) - 2 and found.failures == []
    assert found.prompts[0] == [97, 97, 97, 97, 98] and len(found.prompts) == len(found.sent)
    profile = profile_of(found, None, {})
    assert profile.prompt_tokens_p50 == 5 and profile.shared_prefix_share > 0.5 and profile.itl_p95_ms is not None


def test_requests_at_their_times_are_sent_once():
    with serving() as url:
        found = observed(url, rows=rows("a", "b", at=0.05), requests=50)
    assert len(found.sent) == 2 and sorted(found.replies) == [0, 1]


def test_waiting_for_requests_has_an_end(monkeypatch):
    monkeypatch.setattr(observing, "PATIENCE_S", 0.1)
    with serving() as url, pytest.raises(UserError, match="only 0 of 3 requests ended at http"):
        observed(url, requests=3)


def test_keys():
    with serving(key="sk-a") as url:
        assert observed(url, key="sk-a").samples
        with pytest.raises(UserError, match="answers 401: give --key, or set DECS_API_KEY"):
            observed(url, key="sk-b")
