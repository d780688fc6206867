"""A real endpoint of two replicas against bodies that nobody should send, and clients that go away.

FUZZ_REQUESTS sets how many bodies the quick run makes of the schema.
"""

import asyncio
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.fuzz_bodies import BASES, CHAT, Splicer, schema_cases, served_schema
from tests.integration.fuzz_hostile import DEAD_ENDS, hostile
from tests.integration.fuzz_replies import Fuzzer, fault_of_error
from tests.serve.live_endpoint import shipped_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "300"))
NIGHTLY = 10_000
SCHEMA_SHARE = 10  # one body in so many is the schema's own; making them is slow
WARM_UP = 0.2  # of the requests: caches fill
GROWTH = 150 << 20  # bytes a replica may grow by afterwards
SEED = 20
LEAVERS = 16
FREE_S = 1.0
TICK_S = 0.02
LEAVING_TRIES = 10  # a busy machine may not let a process run for seconds


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with shipped_model(tmp_path_factory, serve__replicas=2, serve__cpus_per_replica=0.4) as found:
        yield found


@pytest.fixture(scope="module")
def document():
    return served_schema()


def ask(endpoint, **options):
    body = BASES[CHAT] | options
    return httpx.post(endpoint.url + CHAT, json=body, timeout=180, trust_env=False)


def check_whole(endpoint, pids):
    """The same replicas as before are ready, empty and answer."""
    assert [state["pid"] for state in endpoint.states()] == pids
    assert endpoint.busy() == 0
    for _ in range(4):  # the proxy goes from replica to replica
        assert httpx.get(f"{endpoint.url}/readyz", timeout=60, trust_env=False).status_code == 200
        assert ask(endpoint).status_code == 200


def test_hostile_bodies_are_refused_and_harm_nothing(endpoint):
    pids = [state["pid"] for state in endpoint.states()]
    fuzzer, failed = Fuzzer(endpoint.url), endpoint.count("failed")
    for path, headers, body, allowed in hostile():
        fuzzer.send("POST", path, headers, body, allowed)
    assert fuzzer.faults == [] and fuzzer.sent > 300
    assert endpoint.count("failed") == failed
    check_whole(endpoint, pids)


@pytest.mark.parametrize("count", [REQUESTS, pytest.param(NIGHTLY, marks=pytest.mark.nightly)])
def test_bodies_made_of_the_schema_get_answers_and_leave_nothing(endpoint, document, count):
    pids = [state["pid"] for state in endpoint.states()]
    failed = endpoint.count("failed")
    cases = schema_cases(document, max(count // SCHEMA_SHARE, 60), SEED)
    fuzzer, rng = Fuzzer(endpoint.url), random.Random(SEED)
    rng.shuffle(cases)
    splicer, before = Splicer(cases, rng), None
    for number in range(count):
        if number >= WARM_UP * count and before is None:
            before = endpoint.memory()
        if number % SCHEMA_SHARE == 0 and cases:
            fuzzer.send(*cases.pop())
        else:
            path, body = splicer.body()
            fuzzer.send("POST", path, {"content-type": "application/json"}, json.dumps(body).encode())
    after = endpoint.memory()
    told = {path: {s: n for (p, s), n in sorted(fuzzer.statuses.items()) if p == path} for path in BASES}
    grown = {pid: f"{before[pid] >> 20} -> {after[pid] >> 20} MiB" for pid in pids}
    print(f"{fuzzer.sent} requests: {told}; dead ends: {fuzzer.dead_ends}; memory: {grown}")
    assert fuzzer.faults == []
    assert endpoint.count("failed") - failed <= fuzzer.dead_ends
    assert min(sum(n for s, n in told[path].items() if s == 200) for path in BASES) > 0  # some get through
    check_whole(endpoint, pids)
    assert all(after[pid] - before[pid] < GROWTH for pid in pids), grown


async def leave(url, is_stream):
    """Asks for as many tokens as fill the engine for long and goes away: after three events, or while it waits. By a
    bare socket: what a busy machine leaves of its time to a client library may be too little to go in time."""
    body = json.dumps(BASES[CHAT] | {"max_tokens": 450, "ignore_eos": True, "n": 32, "stream": is_stream})
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    try:
        if is_stream:
            for _ in range(3):
                await asyncio.wait_for(reader.readuntil(b"data: "), 60)
            return "left"
        await asyncio.wait_for(reader.read(1), 0.3)
    except TimeoutError:
        return "left" if not is_stream else "waited in vain"
    finally:
        writer.close()
    return "answered"


async def all_leave(url, is_stream):
    """What each of them saw, and for how long at most this process was not let run meanwhile."""
    longest = 0.0

    async def watch():
        nonlocal longest
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            longest = max(longest, time.monotonic() - began - TICK_S)

    watching = asyncio.create_task(watch())
    outcomes = await asyncio.gather(*(leave(url, is_stream) for _ in range(LEAVERS)))
    await asyncio.sleep(0)  # a late tick is noted
    watching.cancel()
    return outcomes, longest


@pytest.mark.parametrize("is_stream", [True, False])
def test_clients_that_go_away_free_their_slots_within_a_second(endpoint, is_stream):
    began = time.monotonic()
    assert ask(endpoint, max_tokens=450, ignore_eos=True, n=32).status_code == 200
    whole = time.monotonic() - began  # of one such reply; sixteen that nobody reads would take many times as long
    for _ in range(LEAVING_TRIES):
        left, requests = endpoint.count("left"), endpoint.count("requests")
        with httpx.Client(base_url=endpoint.url, timeout=180, trust_env=False) as http:
            outcomes, held_up = asyncio.run(all_leave(endpoint.url, is_stream))
            gone = time.monotonic()
            # twice in a row the proxy goes to both replicas; with their slots taken these would wait for many seconds
            statuses = [http.post(CHAT, json=BASES[CHAT] | {"max_tokens": 1}).status_code for _ in range(2)]
        free = time.monotonic() - gone
        print(
            f"free {free:.2f} s after the last client left, held up {held_up:.2f} s, a whole reply took {whole:.2f} s"
        )
        if held_up < whole / 4:
            break  # else they left late, and some replies were whole by then
    assert held_up < whole / 4, "this machine lets no client go in time"
    assert statuses == [200] * 2
    assert free < max(FREE_S, whole) and endpoint.busy() == 0
    assert outcomes == ["left"] * LEAVERS
    assert (endpoint.count("left") - left, endpoint.count("requests") - requests) == (LEAVERS, LEAVERS + 2)


@pytest.mark.parametrize("options", DEAD_ENDS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_grammar_without_a_next_token_ends_its_own_request_alone(endpoint, options, is_stream):
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(ask, endpoint, max_tokens=200, ignore_eos=True) for _ in range(4)]
        reply = ask(endpoint, max_tokens=50, stream=is_stream, **options)
        assert [other.result().status_code for other in others] == [200] * 4
    if is_stream:
        assert reply.status_code == 200 and reply.text.rstrip().endswith("data: [DONE]")
    elif reply.status_code != 200:
        assert fault_of_error(reply.status_code, reply.json()) in (None, "status 500: Internal server error")
    assert endpoint.busy() == 0 and ask(endpoint).status_code == 200
