"""Labellers: the exact judge, and a large model behind an endpoint that may fail."""

import json
import math
from http.server import BaseHTTPRequestHandler

import pytest

from pipeline.config import UserError, load_config
from pipeline.judge import JudgeFailure, JudgeItem
from pipeline.judge.labelling import EndpointLabeller, ExactLabeller, build_labeller, label
from tests.http_servers import running

RIGHT, WRONG = (JudgeItem("What is 3 + 4?", "7", f"So the answer is {said}.") for said in (7, 8))


@pytest.fixture
def server():
    """Answers by the segment's last word: yes, no, odd, torn, bare or down; a float is the probability of yes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append(asked)
            segment = asked["messages"][0]["content"].split("Part of")[1].split("\n\nDoes")[0]
            self.reply(segment.split()[-1])

        def reply(self, word):
            if word == "down":
                self.send_error(400)
                return
            known = {
                "yes": {"Yes": 0.6, " yes": 0.3, "no": 0.1},
                "no": {" no": 0.99},
                "odd": {"Well": 0.9, "yes": 0.1},
                "torn": {"yes": 0.55, "no": 0.45},
            }
            shares = known.get(word, {"yes": 1.0})
            top = [{"token": t, "logprob": math.log(p), "bytes": None} for t, p in shares.items()]
            logprobs = None if word == "bare" else {"content": [{**top[0], "top_logprobs": top}], "refusal": None}
            choice = {"index": 0, "finish_reason": "length", "logprobs": logprobs}
            choice |= {"message": {"role": "assistant", "content": "?"}}
            body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    with running(Handler, asked=[]) as (started, _):
        yield started


def endpoint(server):
    return EndpointLabeller(f"http://127.0.0.1:{server.server_address[1]}/v1", "large")


def test_the_exact_labeller():
    odd = JudgeItem("q", "x" * 3, "no statement")
    assert ExactLabeller().labels([RIGHT, WRONG, odd]) == [True, False, False]


def test_a_large_model_labels_by_its_first_token(server):
    texts = ("yes", "no", "odd", "torn", "bare", "down")
    labels = endpoint(server).labels([JudgeItem("p", "g", f"it is {text}") for text in texts])
    assert labels == [True, False, None, None, None, None]
    asked = server.asked[0]
    assert (asked["model"], asked["max_tokens"], asked["temperature"], asked["logprobs"]) == ("large", 1, 0.0, True)
    (message,) = asked["messages"]
    assert "Problem:\np\n" in message["content"] and "Reference answer:\ng\n" in message["content"]


def test_failures_are_left_out_and_counted(server):
    items = [JudgeItem("p", str(i), "it is down" if i == 7 else "it is yes") for i in range(60)]
    found = label(endpoint(server), items, max_failure_rate=0.05)
    assert (len(found.items), found.failed) == (59, 1) and all(found.yes) and items[7] not in found.items


def test_too_many_failures_end_it_and_say_why(server):
    items = [JudgeItem("p", str(i), "it is bare" if i % 2 else "it is yes") for i in range(60)]
    with pytest.raises(JudgeFailure, match="the labeller failed on 30 of its last 60 segments.*no log-probs"):
        label(endpoint(server), items, max_failure_rate=0.05)
    with pytest.raises(UserError, match="labelled none of 3 segments"):
        label(endpoint(server), [JudgeItem("p", "g", "down")] * 3, max_failure_rate=0.05)


def test_the_config_names_the_labeller():
    assert isinstance(build_labeller(load_config(None, []).judge_training), ExactLabeller)
    options = ["labeller=endpoint", "endpoint_url=http://x/v1", "endpoint_model=m"]
    found = build_labeller(load_config(None, [f"judge_training.{option}" for option in options]).judge_training)
    assert isinstance(found, EndpointLabeller) and (found.url, found.model) == ("http://x/v1", "m")
    for wrong, why in ((options[:1], "needs endpoint_url"), (options[1:], "do nothing unless labeller is 'endpoint'")):
        with pytest.raises(UserError, match=why):
            load_config(None, [f"judge_training.{option}" for option in wrong])
    with pytest.raises(UserError, match="short_steps needs short questions"):
        load_config(None, ["judge_training.short=0"])
