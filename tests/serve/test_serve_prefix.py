"""Routing by a prompt's start: what is remembered, whom a request is sent to, and what is read of a body."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.prefix_index import BLOCK, MAX_CHARACTERS, PrefixIndex, blocks_of, choose, prompt_text

A, B = "a" * BLOCK, "b" * BLOCK
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["role", "content", "text"]), inner),
)


def test_a_block_stands_for_all_before_it():
    assert blocks_of(A + B)[0] == blocks_of(A + A)[0] != blocks_of(B + B)[0]
    assert blocks_of(A + B)[1] != blocks_of(B + B)[1]
    assert blocks_of(A[:-1]) == [] and len(blocks_of(A + B[:-1])) == 1
    assert len(blocks_of("x" * MAX_CHARACTERS * 2)) == MAX_CHARACTERS // BLOCK


def test_the_longest_known_start_wins():
    index = PrefixIndex()
    index.remember(blocks_of(A + A), "one")
    index.remember(blocks_of(A + B), "two")
    assert index.matches(blocks_of(A + B + B), ("one", "two")) == {"one": 1, "two": 2}
    assert index.matches(blocks_of(A + B), ("one",)) == {"one": 1}
    assert index.matches(blocks_of(B), ("one", "two")) == {}
    assert choose(index, blocks_of(A + B + B), {"one": 0, "two": 5}, 8) == "two"


def test_a_replica_too_far_above_the_least_loaded_is_passed_over():
    index = PrefixIndex()
    index.remember(blocks_of(A), "one")
    assert choose(index, blocks_of(A), {"one": 8, "two": 0}, 8) == "one"
    assert choose(index, blocks_of(A), {"one": 9, "two": 0}, 8) == "two"


def test_of_two_that_know_as_much_the_less_loaded():
    index = PrefixIndex()
    for name in ("one", "two"):
        index.remember(blocks_of(A + B), name)
    assert choose(index, blocks_of(A + B), {"one": 3, "two": 2, "three": 0}, 8) == "two"


def test_a_little_in_common_is_not_enough():
    loads, long = {"one": 0, "two": 0}, blocks_of(A + B * 20)
    drawn = choose(PrefixIndex(), long, loads, 8)
    index = PrefixIndex()
    index.remember(blocks_of(A), "two" if drawn == "one" else "one")
    assert choose(index, long, loads, 8) == drawn
    assert choose(index, blocks_of(A + B), loads, 8) != drawn


def test_routers_that_know_nothing_agree_and_spread():
    loads = {"one": 0, "two": 0, "three": 0}
    chosen = [choose(PrefixIndex(), blocks_of(f"{n:032}"), loads, 8) for n in range(300)]
    assert chosen == [choose(PrefixIndex(), blocks_of(f"{n:032}"), loads, 8) for n in range(300)]
    assert min(chosen.count(name) for name in loads) > 70


def test_a_short_prompt_goes_to_the_least_loaded():
    assert {choose(PrefixIndex(), [], {"one": 2, "two": 1}, 8) for _ in range(20)} == {"two"}


def test_memory_is_bounded_and_starts_are_kept_longest():
    index = PrefixIndex(max_blocks=3)
    index.remember(blocks_of(A * 5), "one")
    assert len(index) == 3 and index.matches(blocks_of(A * 5), ("one",)) == {"one": 3}
    index.remember(blocks_of(B), "one")
    assert index.matches(blocks_of(A * 5), ("one",)) == {"one": 2}


def test_a_replica_that_is_gone_leaves_nothing():
    index = PrefixIndex()
    index.remember(blocks_of(A), "one")
    index.remember(blocks_of(A + B), "two")
    index.forget("two")
    assert len(index) == 1 and index.matches(blocks_of(A), ("one", "two")) == {"one": 1}


@pytest.mark.parametrize(
    ("request_body", "text"),
    [
        ({"prompt": "abc", "model": "m"}, "abc"),
        ({"prompt": [1, 20]}, "1 20"),
        ({"prompt": ["a", "b"]}, "a\nb"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "user\nhi"),
        ({"messages": [{"content": [{"type": "text", "text": "hi"}], "role": "user"}]}, "user\nhi"),
        ({"tools": [{"a": 1}], "messages": [{"role": "user", "content": "x"}]}, '[{"a": 1}]\nuser\nx'),
        ({"input": "why", "instructions": "short"}, "short\nwhy"),
        ({"messages": [], "model": "m"}, ""),
        ([1], ""),
    ],
)
def test_what_a_prompt_begins_with(request_body, text):
    assert prompt_text(json.dumps(request_body).encode()) == text


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"prompt": "ab', b"\xff\xfe", b"[" * 200_000, b'{"prompt":' + b"[" * 990]
)
def test_bodies_that_say_nothing(body):
    assert prompt_text(body) == ""


@given(st.dictionaries(st.sampled_from(["messages", "prompt", "input", "tools", "instructions"]), JSON))
def test_no_body_breaks_the_router(body):
    text = prompt_text(json.dumps(body).encode())
    assert choose(PrefixIndex(), blocks_of(text), {"one": 0}, 8) == "one"


class Replica:
    def __init__(self, load):
        self.load, self.asked = load, 0

    async def get_queue_len(self, *, deadline_s):
        self.asked += 1
        if self.load is None:
            raise RuntimeError("gone")
        return self.load


def test_loads_are_what_replicas_said_and_what_was_sent_since():
    from serve.prefix_router import Loads

    async def scenario():
        loads, one, two = Loads(), Replica(3), Replica(None)
        replicas = {"one": one, "two": two}
        assert await loads.of(replicas) == {"one": 3, "two": 0}
        loads.sent("one")
        loads.sent("two")
        assert await loads.of(replicas) == {"one": 4, "two": 1}
        assert (one.asked, two.asked, loads.unanswered) == (1, 1, 1)
        return await loads.of({"two": two})

    assert asyncio.run(scenario()) == {"two": 1}


def test_the_router_answers_haproxy_with_the_replicas_name():
    from starlette.requests import Request

    from serve.prefix_router import Loads, PrefixRouter

    class Router(PrefixRouter.__mro__[1]):
        def __init__(self, replicas):
            self._index, self._loads, self._names, self._imbalance = PrefixIndex(), Loads(), set(), 8
            self.replicas = replicas

        def _replicas(self):
            return self.replicas

    async def ask(router, body):
        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        reply = await router.route(Request({"type": "http", "method": "POST", "headers": []}, receive))
        return reply.status_code, json.loads(reply.body).get("replica_id")

    async def scenario():
        router = Router({"app#d#one": Replica(0), "app#d#two": Replica(0)})
        body = json.dumps({"prompt": A + B}).encode()
        first = await ask(router, body)
        again = [await ask(router, body) for _ in range(5)]
        assert first[0] == 200 and set(again) == {first}
        router.replicas.pop(first[1])
        other = await ask(router, body)
        assert other[1] in router.replicas
        router.replicas.clear()
        assert (await ask(router, body))[0] == 503

    asyncio.run(scenario())


def test_the_routers_port_is_on_loopback(monkeypatch):
    from ray.serve._private import replica
    from ray.serve.config import HTTPOptions

    from serve.node_only import bind_http_to_loopback

    async def start(app, options, **more):
        return options.host, options.port, more

    monkeypatch.setattr(replica, "start_asgi_http_server", start)
    bind_http_to_loopback()
    bind_http_to_loopback()
    started = asyncio.run(replica.start_asgi_http_server(None, HTTPOptions(host="0.0.0.0", port=7), event_loop=1))
    assert started == ("127.0.0.1", 7, {"event_loop": 1})
