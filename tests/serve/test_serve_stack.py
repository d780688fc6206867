"""A replica's whole HTTP app (access, own routes, gate, engine) behind a real server, under load and odd requests."""

import asyncio
import gc
import json
import logging
import time
from collections import Counter
from http.client import HTTPConnection
from types import CoroutineType

import httpx
import pytest

from serve.asgi import Reply
from serve.gate import Admission
from serve.policy import Policy
from serve.short_path import ShortPath
from tests.serve.access.fake_app import ADMIN, CHAT, INFER, KEYS, error_of
from tests.serve.fake_stack import GENERATING, V1, V2, CancellingServer, FakeReplica, Stack, serving

CHAT_PATH = "/v1/chat/completions"
WHOLE_S = 30.0  # for anything that must happen at all
JSON = {"content-type": "application/json"}
ENDLESS = 1_000_000  # tokens: only a client that leaves ends such a request


def client(stack):
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # its pool is slow with many idle ones
    return httpx.AsyncClient(base_url=stack.url, timeout=60, limits=limits, trust_env=False)


async def until(check, what, deadline_s=WHOLE_S):
    end = time.monotonic() + deadline_s
    while not check():
        assert time.monotonic() < end, f"{what} did not happen within {deadline_s:g} s"
        await asyncio.sleep(0.005)


async def emptied(stack, deadline_s=2.0):
    """Nothing holds on to any request; a client may have its reply a little earlier."""
    await until(lambda: not any(stack.counts().values()), f"an empty replica ({stack.counts()})", deadline_s)


async def whole(http, tokens):
    """(text, marks of the body, mark of the header)"""
    reply = await http.post(CHAT_PATH, json=CHAT | {"max_tokens": tokens})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    return body["choices"][0]["message"]["content"], {body["system_fingerprint"]}, reply.headers["x-policy-version"]


async def pieces(reply):
    """(text, mark) of each event of a stream."""
    async for line in reply.aiter_lines():
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            yield event["choices"][0]["delta"]["content"], event["system_fingerprint"]


async def streamed(http, tokens):
    async with http.stream("POST", CHAT_PATH, json=CHAT | {"max_tokens": tokens, "stream": True}) as reply:
        assert reply.status_code == 200
        found = [piece async for piece in pieces(reply)]
    for text, mark in found:
        assert {"a": "v1", "b": "v2"}[text] in mark, f"{text} came from weights that {mark} does not name"
    return "".join(text for text, _ in found), {mark for _, mark in found}, reply.headers["x-policy-version"]


def started(http, count, tokens):
    kinds = (whole, streamed)
    return [asyncio.create_task(kinds[i % 2](http, tokens)) for i in range(count)]


async def in_the_middle(stack, http, count, tokens, policy):
    """So many requests, and a swap that begins while all of them are being answered."""
    await stack.submit(stack.engine.pause("keep"))
    running = started(http, count, tokens)
    await until(lambda: stack.engine.running == count, f"{count} requests in the engine")

    async def swap():
        await stack.engine.resume()
        await asyncio.sleep(0.1)
        assert stack.engine.running == stack.gate.inside == count
        await stack.swapper.to(policy)

    return running, stack.submit(swap())


def test_a_swap_under_load_mixes_no_reply_and_fails_none():
    async def run(stack):
        async with client(stack) as http:
            before, swapping = await in_the_middle(stack, http, 100, 200, V2)
            await until(lambda: not stack.gate.is_open, "the closing of the gate")
            meanwhile = started(http, 20, 5)
            await until(lambda: stack.gate.waiting == 20, "20 requests before the gate")
            await swapping
            after = started(http, 20, 5)
            replies = [await asyncio.gather(*tasks) for tasks in (before, meanwhile, after)]
            await emptied(stack)
            return replies

    with serving(Stack(token_s=0.005)) as stack:
        before, meanwhile, after = asyncio.run(run(stack))
        assert before == [("a" * 200, {V1.fingerprint}, V1.fingerprint)] * 100
        assert meanwhile == after == [("b" * 5, {V2.fingerprint}, V2.fingerprint)] * 20
        served = stack.tally.state()
        assert [(served[p.fingerprint]["requests"], served[p.fingerprint]["failed"]) for p in (V1, V2)] == [
            (100, 0),
            (40, 0),
        ]
        assert served[V1.fingerprint]["output_tokens"] == 100 * 200
        assert stack.swapper.swaps == 1 and stack.gate.mixed == 0


def test_mode_keep_marks_every_mixture():
    async def run(stack):
        async with client(stack) as http:
            running, swapping = await in_the_middle(stack, http, 20, 200, Policy(2, "/2", V2.digest, "keep"))
            await swapping
            after = await asyncio.gather(*started(http, 4, 5))
            replies = await asyncio.gather(*running)
            await emptied(stack)
            return replies, after

    with serving(Stack(token_s=0.005)) as stack:
        replies, after = asyncio.run(run(stack))
        both = f"{V1.fingerprint}+{V2.fingerprint}"
        for text, marks, header in replies:
            assert len(text) == 200 and text == "a" * text.count("a") + "b" * text.count("b") and len(set(text)) == 2
            assert (marks, header) in [({both}, both), ({V1.fingerprint, both}, V1.fingerprint)]
        assert after == [("b" * 5, {V2.fingerprint}, V2.fingerprint)] * 4
        assert stack.gate.mixed == 20


# --- clients that leave, and more of them than there is room for ----------------------------------------------------


async def leaves_a_stream(http):
    async with http.stream("POST", CHAT_PATH, json=CHAT | {"max_tokens": ENDLESS, "stream": True}) as reply:
        if reply.status_code != 200:
            await reply.aread()
            return refused(reply)
        seen = 0
        async for _ in pieces(reply):
            seen += 1
            if seen == 3:
                return "left"
    return "cut off"


async def leaves_early(http):
    try:
        reply = await http.post(CHAT_PATH, json=CHAT | {"max_tokens": ENDLESS}, timeout=httpx.Timeout(60, read=0.2))
    except httpx.ReadTimeout:
        return "left"
    return refused(reply)


async def stays(http):
    reply = await http.post(CHAT_PATH, json=CHAT | {"max_tokens": 10})
    return "answered" if reply.status_code == 200 else refused(reply)


def refused(reply):
    assert reply.status_code == 503 and int(reply.headers["retry-after"]) >= 1
    assert "no room" in error_of(reply)["message"] and error_of(reply)["type"] == "overloaded_error"
    return "refused"


async def crowd(stack):
    """How 300 requests at once went, a third of each kind."""
    async with client(stack) as http:
        kinds = [(leaves_a_stream, leaves_early, stays)[i % 3] for i in range(300)]
        outcomes = await asyncio.gather(*(kind(http) for kind in kinds))
        await emptied(stack)
    return Counter((kind.__name__, outcome) for kind, outcome in zip(kinds, outcomes, strict=True))


def kept_objects():
    gc.collect()
    kinds = Counter(type(thing) for thing in gc.get_objects())
    held = [kinds[kind] for kind in (Admission, Reply, CoroutineType)]
    return sum(kinds.values()), held


def test_clients_that_leave_free_their_places_and_nothing_grows(caplog):
    caplog.set_level(logging.CRITICAL)  # pytest keeps every record it sees

    async def rounds(stack):
        sizes = []
        for _ in range(3):
            outcomes = await crowd(stack)
            assert {kind for kind, _ in outcomes} == {"leaves_a_stream", "leaves_early", "stays"}
            assert {outcome for _, outcome in outcomes} == {"left", "answered", "refused"}
            assert outcomes["stays", "answered"] + outcomes["stays", "refused"] == 100
            await asyncio.sleep(0.1)  # the server closes what the clients left
            sizes.append(kept_objects())
            everything.update(outcomes)
        return sizes

    everything = Counter()
    with serving(Stack(slots=8, token_s=0.01, max_waiting=150)) as stack:
        sizes = asyncio.run(rounds(stack))
        engine = stack.engine
        assert engine.entered == engine.finished + engine.aborted
        assert engine.finished == everything["stays", "answered"]
        left = everything["leaves_a_stream", "left"] + everything["leaves_early", "left"]
        assert 0 < engine.aborted <= left  # one that left before its body was read has not entered
        served = stack.tally.state()[V1.fingerprint]
        assert served["failed"] == 0 and served["requests"] == engine.entered
        assert served["left"] == engine.aborted
    assert sizes[2][1][:2] == [0, 0] and sizes[2][1][2] - sizes[1][1][2] < 10
    assert sizes[2][0] - sizes[1][0] < 300, f"objects after each round: {[size for size, _ in sizes]}"


def test_clients_that_leave_before_a_closed_gate_are_not_computed_for():
    async def run(stack):
        async with client(stack) as http:
            leaving = [asyncio.create_task(leaves_early(http)) for _ in range(20)]
            await until(lambda: stack.gate.waiting == 20, "20 requests before the gate")
            assert await asyncio.gather(*leaving) == ["left"] * 20
            waiting = asyncio.create_task(stays(http))
            await until(lambda: stack.gate.waiting > 0, "a request before the gate")
            await stack.submit(stack.swapper.adopt(V1))
            assert await waiting == "answered"
            await emptied(stack)

    with serving(Stack(token_s=0.002), policy=None) as stack:
        asyncio.run(run(stack))
        assert stack.engine.finished == 1 and stack.engine.entered == 1 + stack.engine.aborted


WAYS = {"short path": Stack.as_ray_serves, "Serve's": lambda stack: CancellingServer(stack.app)}


@pytest.mark.parametrize("leaves", [leaves_a_stream, leaves_early])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_leaves_ends_its_reply_and_counts_as_left(leaves, way, caplog):
    caplog.set_level(logging.INFO, "serve.access")

    async def run(stack):
        async with client(stack) as http:
            assert await leaves(http) == "left"
            await emptied(stack)

    stack = Stack()
    with serving(stack, app=WAYS[way](stack)):
        asyncio.run(run(stack))
        assert stack.engine.aborted == 1
        served = stack.tally.state()[V1.fingerprint]
        assert (served["requests"], served["left"], served["failed"], served["seconds"]) == (1, 1, 0, [])
    status = 200 if leaves is leaves_a_stream else 499
    assert [f"POST {CHAT_PATH} {status} " in line for line in caplog.messages if CHAT_PATH in line] == [True]


def test_a_client_that_leaves_before_a_gate_that_closed_while_its_body_came_frees_its_place():
    async def run(stack):
        arrived = CHAT | {"max_tokens": ENDLESS}
        sent = json.dumps(arrived).encode()
        reader, writer = await asyncio.open_connection(*stack.address)
        head = f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}"
        writer.write(f"{head}\r\n\r\n".encode() + sent[:5])
        await until(lambda: stack.app.access.inside == 1, "a request inside")
        await stack.submit(stack.gate.close(1.0, "v2"))
        writer.write(sent[5:])
        await until(lambda: stack.gate.waiting == 1, "a request before the gate")
        writer.close()
        await emptied(stack)

    with serving(Stack()) as stack:
        asyncio.run(run(stack))
        assert stack.engine.entered == 0


def test_a_body_heard_before_the_gate_reaches_the_engine():
    async def run(stack):
        async with client(stack) as http:
            waiting = [asyncio.create_task(kind(http, 5)) for kind in (whole, streamed)]
            await until(lambda: stack.gate.waiting == 2, "2 requests before the gate")
            await stack.submit(stack.swapper.adopt(V1))
            for text, marks, _ in await asyncio.gather(*waiting):
                assert (text, marks) == ("a" * 5, {V1.fingerprint})
            await emptied(stack)

    with serving(Stack(), policy=None) as stack:
        asyncio.run(run(stack))


def test_serve_has_the_figures_of_what_takes_the_short_path():
    async def run(stack):
        async with client(stack) as http:
            assert await stays(http) == "answered"
            await streamed(http, 3)
            assert (await http.post(CHAT_PATH, content=b"{", headers=JSON)).status_code == 400
            assert await leaves_early(http) == "left"
            assert await leaves_a_stream(http) == "left"
            await emptied(stack)
            for headers in ({"x-request-timeout-seconds": "9"}, {}):  # Serve's own way
                assert (await http.post(CHAT_PATH, json=CHAT | {"max_tokens": 2}, headers=headers)).status_code == 200
                assert (await http.get("/livez")).status_code == 200

    with serving(Stack()) as stack:
        asyncio.run(run(stack))
    assert stack.short_path.taken == 6
    found = [(one["method"], one["route"], one["status_code"], one["is_error"]) for one in stack.replica.ingress]
    statuses = [("200", False), ("200", False), ("400", True), ("499", True), ("499", True), ("200", False)]
    assert found == [("POST", CHAT_PATH, *status) for status in statuses]
    assert {one["app_name"] for one in stack.replica.ingress} == {"policy"}
    left = [None, None, None, "CancelledError", "CancelledError", None]
    assert [one["exception_type"] for one in stack.replica.requests] == left
    assert all(one["latency_ms"] > 0 for one in stack.replica.requests)


def test_a_request_that_breaks_the_app_is_told_counted_and_no_longer_ongoing(caplog):
    async def breaks(scope, receive, send):
        raise RuntimeError("broken")

    replica = FakeReplica(breaks)
    scope = {"type": "http", "path": CHAT_PATH, "method": "POST", "headers": []}
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(ShortPath().around(replica.handle)(scope, None, None))
    assert replica.ongoing == 0 and [one["exception_type"] for one in replica.requests] == ["RuntimeError"]
    assert [one["status_code"] for one in replica.ingress] == ["500"] and "broken" in caplog.text


def test_what_breaks_after_its_whole_reply_does_not_cost_the_connection(caplog):
    """Starlette sends the 500 and raises all the same; HAProxy would send the next request into a closed connection."""

    async def breaks(scope, receive, send):
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"broken"})
        raise RuntimeError("broken")

    async def nothing(message):
        pass

    replica = FakeReplica(breaks)
    scope = {"type": "http", "path": CHAT_PATH, "method": "POST", "headers": []}
    asyncio.run(ShortPath().around(replica.handle)(scope, None, nothing))
    assert replica.ongoing == 0 and [one["exception_type"] for one in replica.requests] == ["RuntimeError"]
    assert [one["status_code"] for one in replica.ingress] == ["500"] and "broken" in caplog.text


# --- routes and keys -------------------------------------------------------------------------------------------------

OPEN = ["/livez", "/readyz", "/health", "/ui", "/ui/app.js"]
READ = ["/v1/models", "/v1/models/policy"]
WORK = [*GENERATING, "/tokenize", "/detokenize"]
ADMINS = ["/metrics", "/admin/version"]
EVERY = OPEN + READ + WORK + ADMINS
KEYLESS = [None, "", "Bearer", "Bearer ", "Bearer sk-wrong", INFER, f"Basic {INFER}", f"Bearer {INFER}x"]
SCHEMES = ["Bearer", "bearer", "BEARER"]


@pytest.fixture(scope="module")
def locked():
    with serving(Stack(keys=KEYS)) as stack:
        yield stack


def ask(stack, method, path, authorization=None, **headers):
    """(status, body) of a request, its path and headers sent as they stand. The connection must stay usable."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if authorization is not None:
        given["authorization"] = authorization
    sent = json.dumps(CHAT | {"max_tokens": 2}) if method == "POST" else None
    line = HTTPConnection(stack.url.removeprefix("http://"), timeout=30)
    try:
        line.request(method, path, sent, given | ({"content-type": "application/json"} if sent else {}))
        reply = line.getresponse()
        status, body = reply.status, reply.read()
        line.request("GET", "/health")
        assert line.getresponse().status == 200
    finally:
        line.close()
    return status, body


def refusal(stack, method, path, *more):
    """The status that the reply's body names as well."""
    status, body = ask(stack, method, path, *more)
    assert error_of(body)["code"] == status
    return status


@pytest.mark.parametrize("path", EVERY)
def test_a_route_opens_to_its_keys_only(locked, path):
    method = "POST" if path in WORK else "GET"
    for value in KEYLESS:
        if path in OPEN:
            assert ask(locked, method, path, value)[0] == 200
        else:
            assert refusal(locked, method, path, value) == 401
    for scheme in SCHEMES:
        assert ask(locked, method, path, f"{scheme} {INFER}")[0] == (403 if path in ADMINS else 200)
        assert ask(locked, method, path, f"{scheme}  {ADMIN} ")[0] == 200


@pytest.mark.parametrize("path", EVERY)
def test_other_spellings_and_methods_reach_nothing(locked, path):
    before = passed_on(locked)
    for other in spelled_otherwise(path):
        for method in ("GET", "POST"):
            assert refusal(locked, method, other) == 401
            assert refusal(locked, method, other, f"Bearer {ADMIN}") == 404
    posts = path in WORK or path == "/admin/version"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", *(() if posts else ("POST",))):
        assert refusal(locked, method, path, f"Bearer {ADMIN}") == 404
    preflight = {"origin": "https://a.b", "access_control_request_method": "GET"}
    assert ask(locked, "OPTIONS", path, **preflight)[0] == 403
    assert passed_on(locked) == before


def spelled_otherwise(path):
    encoded = f"/%{ord(path[1]):02x}{path[2:]}"
    slashed = [path + "/"] if path != "/ui" else []  # it leads to the page
    return ["/" + path, *slashed, path.upper(), path + "%00", path + "/..", "/." + path, encoded, path + ";a=b"]


def passed_on(stack):
    """How many requests reached the engine, without those that `ask` adds."""
    return sum(path != "/health" for _, path in stack.engine.asked)


@pytest.mark.parametrize("path", EVERY)
def test_head_is_a_get_without_a_body(locked, path):
    assert ask(locked, "HEAD", path) == (200 if path in OPEN else 401, b"")
    assert ask(locked, "HEAD", path, f"Bearer {ADMIN}") == (404 if path in WORK else 200, b"")


def test_no_key_is_ever_logged(locked, caplog):
    caplog.set_level(logging.DEBUG)
    for path in (*EVERY, f"/v1/models/{INFER}", f"/{ADMIN}", f"/v1/models?api_key={INFER}"):
        for value in (f"Bearer {INFER}", f"bearer {ADMIN}", f"Basic {INFER}"):
            ask(locked, "GET", path, value, x_api_key=INFER)
            ask(locked, "POST", path, value)
    # Serve's server writes no access log of its own either
    logged = [str(record.__dict__) for record in caplog.records if record.name != "uvicorn.access"]
    lines = "\n".join(logged)
    assert len(logged) >= 6 * len(EVERY) and "key=ann" in lines and "key=root" in lines
    assert INFER not in lines and ADMIN not in lines


def test_websockets_are_closed_and_not_passed_on(locked):
    before = len(locked.engine.asked)
    for path in (CHAT_PATH, "/v1/realtime", "/livez"):
        line = HTTPConnection(locked.url.removeprefix("http://"), timeout=30)
        upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "authorization": f"Bearer {ADMIN}"}
        line.request("GET", path, headers=upgrade | key)
        assert line.getresponse().status == 403
        line.close()
    assert len(locked.engine.asked) == before


def test_only_the_engine_sees_the_start_and_the_end():
    stack = Stack()
    with serving(stack):
        assert stack.engine.asked == [("lifespan", None)]
