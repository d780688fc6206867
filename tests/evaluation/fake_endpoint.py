"""A small OpenAI-compatible server whose replies are demonstrations of the tiny world, decided by problem and seed."""

import json
import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from pipeline.problems.tiny_lessons import Overthinking, demonstrate
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Stop, Trace, VersionSpan
from tests.http_servers import running

TOKENIZER = build_tokenizer()


def demonstration(problem, seed, version=0, sample=0):
    """A trace that solves the problem, or states a wrong answer after the same thinking for one seed in three."""
    rng = random.Random(f"{problem.id}/{seed}")
    text = demonstrate(problem, Overthinking(slip=0, checks=(1, 2)), rng)
    if rng.random() < 1 / 3:
        text = text.split("</think>")[0] + "</think>\nThe answer is \\boxed{99}."
    return written(problem, text, version, sample)


def written(problem, text, version=0, sample=0):
    """A trace with this text, in the tiny model's tokens."""
    ids = tuple(TOKENIZER.encode(text + "<eos>", add_special_tokens=False))
    return Trace(problem.id, sample, (1,), ids, (0.0,) * len(ids), (VersionSpan(version, 0, len(ids)),), Stop.EOS, text)


class FakeEndpoint:
    """What it was asked, which request numbers fail, and from which one on another version answers."""

    def __init__(self, problems, fails=(), mark="v3-abc", later=None):
        self.problems = {problem.prompt: problem for problem in problems}
        self.fails, self.mark, self.later = set(fails), mark, later  # later: (request number, mark)
        self.asked, self.lock = [], threading.Lock()

    def reply(self, body):
        """(status, JSON) for one chat completion."""
        with self.lock:
            number = len(self.asked)
            self.asked.append(body)
        if number in self.fails:
            return 503, {"error": {"message": "busy"}}
        mark = self.later[1] if self.later and number >= self.later[0] else self.mark
        trace = demonstration(self.problems[body["messages"][0]["content"]], body["seed"])
        thinking, _, answer = trace.text.partition("</think>")
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer, "reasoning": thinking},
            "finish_reason": "stop",
            "token_ids": list(trace.token_ids),
        }
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]}
        return 200, {**whole, "system_fingerprint": mark, "prompt_token_ids": [1]}


@contextmanager
def serving(endpoint, models=("policy",), status=200, key=None):
    """The address of a server for `endpoint`, which asks for `key` if there is one."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def answer(self, code, value):
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def refused(self):
            if key and self.headers["authorization"] != f"Bearer {key}":
                self.answer(401, {"error": {"message": "no key"}})
                return True
            return False

        def do_GET(self):
            if self.refused():
                return
            listed = {"data": [{"id": name} for name in models]} if models is not None else b"<html>hello</html>"
            self.answer(status, listed)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self.refused():
                self.answer(*endpoint.reply(body))

    with running(Handler) as (_, url):
        yield url
