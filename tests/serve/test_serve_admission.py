"""Admission at a real endpoint: a flood is refused and counted, and who has priority does not wait for the others."""

import asyncio
import re
from collections import Counter

import httpx
import pytest

from tests.serve.live_endpoint import shipped_model

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

LIMIT, AT_ONCE = 8, 2


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    admission = f"{{policy: priority, max_requests: {LIMIT}}}"
    with shipped_model(tmp_path_factory, admission=admission, engine__max_num_seqs=AT_ONCE) as live:
        yield live


def body(number, tokens, **options):
    return {"model": "policy", "prompt": f"{number} + 1 = ?", "max_tokens": tokens, "ignore_eos": True} | options


async def post(http, url, **keys):
    return await http.post(f"{url}/v1/completions", json=keys)


def rejections(url):
    """By the engine's own counter, over its reasons."""
    text = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text
    return sum(float(value) for value in re.findall(r"^\S*admission_rejections_total\{[^\n]*\} (\S+)", text, re.M))


def test_a_flood_is_refused_with_503_and_counted(endpoint):
    before = rejections(endpoint.url)

    async def flood():
        async with httpx.AsyncClient(timeout=300, trust_env=False, limits=httpx.Limits(max_connections=None)) as http:
            return await asyncio.gather(*(post(http, endpoint.url, **body(n, 200)) for n in range(40)))

    replies = asyncio.run(flood())
    statuses = Counter(reply.status_code for reply in replies)
    assert set(statuses) == {200, 503} and statuses[200] >= LIMIT
    refused = [reply for reply in replies if reply.status_code == 503]
    assert all("busy" in reply.text for reply in refused)
    assert rejections(endpoint.url) - before == len(refused)
    assert httpx.get(f"{endpoint.url}/v1/models", timeout=60, trust_env=False).status_code == 200


def test_priority_overtakes(endpoint):
    order = []

    async def scenario():
        async with httpx.AsyncClient(timeout=300, trust_env=False) as http:

            async def one(name, tokens, priority):
                reply = await post(http, endpoint.url, **body(len(name), tokens, priority=priority))
                assert reply.status_code == 200, reply.text
                order.append(name)

            running = [asyncio.create_task(one(f"running {n}", 400, 5)) for n in range(AT_ONCE)]
            await _inside(endpoint, AT_ONCE)
            waiting = [asyncio.create_task(one(f"waiting {n}", 60, 5)) for n in range(4)]
            await _inside(endpoint, AT_ONCE + 4)
            await asyncio.gather(one("late", 60, 0), *running, *waiting)

    asyncio.run(scenario())
    assert order.index("late") < min(order.index(f"waiting {n}") for n in range(4))


async def _inside(endpoint, count):
    for _ in range(600):
        if await asyncio.to_thread(endpoint.busy) >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{count} requests are not inside after 30 s")
