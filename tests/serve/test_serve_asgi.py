"""The gate around an app: marks, ids, preconditions, counts; and what a broken or abandoned reply counts as."""

import asyncio
import json

import pytest

from serve.access.reading import ClientLeft
from serve.asgi import GateMiddleware
from serve.gate import Gate
from serve.tally import KEPT_MARKS, Tally

PATH = "/v1/chat/completions"


class Caller:
    charged = 0

    def charge(self, tokens):
        self.charged += tokens


async def call(app, *, path=PATH, method="POST", headers=(), gate=None, incoming=(), hides=False, stays=False):
    """(status, headers, body, tally, caller, the scope the app saw) of one request through the middleware."""
    gate, tally, caller = gate or opened(), Tally(), Caller()
    sent, seen = [], []

    async def noting(scope, receive, send):
        seen.append(scope)
        await app(scope, receive, send)

    async def receive():
        if not messages and stays:
            await asyncio.Event().wait()
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    messages = [{"type": "http.request", "body": b"{}"}, *incoming]
    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "path": path, "method": method, "headers": raw}
    scope["state"] = {"caller": caller, "hide_usage": hides}
    try:
        await GateMiddleware(noting, gate, tally)(scope, receive, send)
    except (RuntimeError, ClientLeft) as error:
        sent.append({"error": error})
    start = next((message for message in sent if message.get("type") == "http.response.start"), {})
    body = b"".join(message.get("body", b"") for message in sent)
    return start.get("status"), dict(start.get("headers", ())), body, tally.state(), caller, seen


def opened(mark="v1-aa"):
    gate = Gate()
    gate.open(mark)
    return gate


def plain(value, status=200, pieces=1):
    async def app(scope, receive, send):
        text = json.dumps(value).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        cuts = [text[i * len(text) // pieces : (i + 1) * len(text) // pieces] for i in range(pieces)]
        for i, cut in enumerate(cuts):
            await send({"type": "http.response.body", "body": cut, "more_body": i < pieces - 1})

    return app


def stream(*events, breaks=False):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for event in events:
            await send({"type": "http.response.body", "body": b"data: %s\n\n" % event, "more_body": True})
        if breaks:
            raise RuntimeError("engine died")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_plain_reply_is_marked_in_header_body_and_length(pieces):
    usage = {"completion_tokens": 5, "total_tokens": 12}
    status, headers, body, served, caller, _ = asyncio.run(call(plain({"id": "x", "usage": usage}, pieces=pieces)))
    assert status == 200 and headers[b"x-policy-version"] == b"v1-aa"
    assert json.loads(body) == {"system_fingerprint": "v1-aa", "id": "x", "usage": usage}
    assert headers[b"content-length"] == str(len(body)).encode()
    assert (served["v1-aa"]["requests"], served["v1-aa"]["failed"], served["v1-aa"]["output_tokens"]) == (1, 0, 5)
    assert served["v1-aa"]["squared_tokens"] == 25
    assert caller.charged == 12


def test_every_event_of_a_stream_is_marked_and_counted():
    status, headers, body, served, caller, _ = asyncio.run(call(stream(b'{"a":1}', b'{"a":2}', b"[DONE]")))
    assert headers[b"x-policy-version"] == b"v1-aa" and body.count(b'"system_fingerprint":"v1-aa"') == 2
    assert served["v1-aa"]["output_tokens"] == 2 and caller.charged == 2  # without usage: its events


def test_usage_of_a_stream_counts_where_it_has_one():
    usage = b'{"usage":{"completion_tokens":9,"total_tokens":11}}'
    *_, served, caller, _ = asyncio.run(call(stream(b'{"a":1}', usage, b"[DONE]")))
    assert served["v1-aa"]["output_tokens"] == 9 and caller.charged == 11


USAGE = b'{"id":"x","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":9,"total_tokens":11}}'


@pytest.mark.parametrize("hides", [True, False])
def test_usage_that_only_the_limit_asked_for_stays_here(hides):
    said = rb'{"choices":[{"delta":{"content":"\"choices\":[],\"usage\":{\"total_tokens\":1}"}}],"usage":null}'
    _, _, body, _, caller, _ = asyncio.run(call(stream(said, USAGE, b"[DONE]"), hides=hides))
    events = [event for event in body.split(b"\n\n") if event]
    assert len(events) == (2 if hides else 3) and events[-1] == b"data: [DONE]"
    assert b'"content":"\\"choices' in events[0]
    assert caller.charged == 11


def test_who_leaves_pays_for_what_came_and_for_the_prompt():
    sized = [("content-length", "41")]

    async def leaving(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass

    async def leaving_a_stream(scope, receive, send):
        await stream(b'{"a":1}', b'{"a":2}')(scope, receive, send_but_the_end(send))
        await leaving(scope, receive, send)

    async def answering_nobody(scope, receive, send):
        await leaving(scope, receive, send)
        await plain({}, status=499)(scope, receive, send)

    async def charged(app):
        return (await call(app, headers=sized))[4].charged

    def send_but_the_end(send):
        async def sending(message):
            if message["type"] == "http.response.start" or message["more_body"]:
                await send(message)

        return sending

    assert asyncio.run(charged(leaving)) == asyncio.run(charged(answering_nobody)) == 11  # 41 bytes / 4, rounded up
    assert asyncio.run(charged(leaving_a_stream)) == 13
    assert asyncio.run(charged(plain({"error": {}}, status=400))) == 0
    assert asyncio.run(charged(plain({"error": {}}, status=500))) == 0


def test_a_request_that_is_cancelled_has_left():
    async def run():
        gate, tally, caller = opened(), Tally(), Caller()

        async def waits(scope, receive, send):
            await asyncio.sleep(60)

        scope = {"type": "http", "path": PATH, "method": "POST", "state": {"caller": caller}}
        scope["headers"] = [(b"content-length", b"8")]
        task = asyncio.create_task(GateMiddleware(waits, gate, tally)(scope, None, None))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert caller.charged == 2 and tally.state()["v1-aa"]["left"] == 1 and gate.inside == 0

    asyncio.run(run())


def test_a_refusal_by_the_app_keeps_its_body():
    status, headers, body, served, *_ = asyncio.run(call(plain({"error": {}}, status=400)))
    assert status == 400 and json.loads(body) == {"error": {}} and headers[b"x-policy-version"] == b"v1-aa"
    assert served["v1-aa"]["failed"] == 0


def test_a_server_error_counts_as_failed():
    *_, served, _, _ = asyncio.run(call(plain({"error": {}}, status=500)))
    assert served["v1-aa"]["failed"] == 1 and served["v1-aa"]["seconds"] == []


def test_a_stream_that_breaks_counts_as_failed():
    *_, served, _, _ = asyncio.run(call(stream(b'{"a":1}', breaks=True)))
    assert served["v1-aa"]["failed"] == 1


def test_a_client_that_goes_away_is_not_a_failure():
    async def app(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass

    *_, served, _, _ = asyncio.run(call(app))
    assert (served["v1-aa"]["failed"], served["v1-aa"]["left"]) == (0, 1)
    assert served["v1-aa"]["output_tokens"] == served["v1-aa"]["squared_tokens"] == 0


def test_the_id_carries_the_mark_and_never_repeats():
    ids = set()
    for _ in range(2):
        *_, seen = asyncio.run(call(plain({}), headers=[("x-request-id", 'mine "\n/../')]))
        ids |= {value for name, value in seen[0]["headers"] if name == b"x-request-id"}
    assert len(ids) == 2 and all(value.startswith(b"v1-aa-mine..-") for value in ids)


def test_other_weights_than_wanted_are_a_precondition_failed():
    status, headers, body, served, _, seen = asyncio.run(call(plain({}), headers=[("if-match", '"v9-ff"')]))
    assert status == 412 and json.loads(body)["error"]["code"] == 412 and headers[b"x-policy-version"] == b"v1-aa"
    assert seen == [] and served == {}
    status, *_ = asyncio.run(call(plain({}), headers=[("if-match", '"v1-aa"')]))
    assert status == 200


@pytest.mark.parametrize(("path", "method"), [("/v1/models", "GET"), (PATH, "GET"), ("/metrics", "GET")])
def test_other_routes_do_not_wait_for_the_gate(path, method):
    status, headers, *_ = asyncio.run(call(plain({"a": 1}), path=path, method=method, gate=Gate()))
    assert status == 200 and b"x-policy-version" not in headers


def test_a_plain_reply_across_a_swap_names_both():
    gate = opened()

    async def app(scope, receive, send):
        gate.open("v2-bb")
        await plain({"a": 1})(scope, receive, send)

    _, headers, body, served, *_ = asyncio.run(call(app, gate=gate))
    assert headers[b"x-policy-version"] == b"v1-aa+v2-bb" == json.loads(body)["system_fingerprint"].encode()
    assert list(served) == ["v2-bb"]


def test_the_tally_keeps_the_latest_marks():
    tally = Tally()
    for i in range(KEPT_MARKS + 3):
        tally.count(f"v{i}", {"failed": False, "left": False, "output_tokens": 1, "seconds": 0.12345})
    assert list(tally.state()) == [f"v{i}" for i in range(3, KEPT_MARKS + 3)]
    assert tally.state()["v5"]["seconds"] == [0.1235]


def test_a_gate_that_does_not_open_is_told_in_openais_way():
    gate = opened()
    gate.fail("the engine died")
    for closed, says in ((gate, "the engine died"), (Gate(longest_wait_s=0.01), "first weights")):
        status, headers, body, served, _, seen = asyncio.run(call(plain({}), stays=True, gate=closed))
        error = json.loads(body)["error"]
        assert status == 503 and says in error["message"] and int(headers[b"retry-after"]) > 0
        assert seen == [] and served == {}
