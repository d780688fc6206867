"""A real endpoint of up to two replicas: a prompt's start brings requests to one of them, load brings the second."""

import asyncio
import time

import httpx
import pytest

import jobs.serve
from jobs import services
from jobs._services import read_state
from pipeline.problems.tiny_tokenizer import save_tokenizer
from serve import client
from tests.serve.test_serve_endpoint import tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

CHANGE_S = 240  # for a replica to come or go on two busy cores
FAMILIES = range(10, 22)


@pytest.fixture(scope="module")
def deploy(tmp_path_factory):
    """Deploys with further options and returns the dashboard's address."""
    home = tmp_path_factory.mktemp("scale")
    save_tokenizer(home / "base")
    tiny_model(0).save_pretrained(home / "base")
    options = [
        f"model.path={home}/base",
        f"storage.uri={home}/results",
        "engine.max_num_seqs=8",
        "engine.kv_cache_bytes=33554432",
        "serve.start_deadline_s=500",
    ]
    head = home / "services"

    def deployed(*more):
        assert jobs.serve.command(["--services", str(head), *options, *more]) == 0
        return read_state(head)["ray"].urls["dashboard"]

    try:
        services.up(head, only=("ray",))
        yield deployed
    finally:
        services.down(head)


def request(family, number, **options):
    sums = f"{family} + " * 20  # 100 characters in common, three blocks
    usual = {"model": "policy", "prompt": f"{sums}{number} = ?", "max_tokens": 4, "ignore_eos": True}
    return usual | options


def answered(dashboard):
    """Requests answered, by replica."""
    replicas = client.status(dashboard).replicas
    return {name: sum(mark["requests"] for mark in state["served"].values()) for name, state in replicas.items()}


def test_one_familys_prompts_go_to_one_replica(deploy):
    dashboard = deploy("serve.replicas=2", "serve.routing=prefix")
    url = client.status(dashboard).url
    homes, before = [], answered(dashboard)
    assert len(before) == 2
    for family in FAMILIES:
        for number in range(4):
            reply = httpx.post(f"{url}/v1/completions", json=request(family, number), timeout=60)
            assert reply.status_code == 200, reply.text
        now = answered(dashboard)
        homes.append([name for name in now if now[name] > before[name]])
        before = now
    assert all(len(home) == 1 for home in homes), homes
    assert len({home[0] for home in homes}) == 2, "new families were not spread"
    broken = httpx.post(f"{url}/v1/completions", content=b"{", headers={"content-type": "application/json"}, timeout=60)
    assert broken.status_code == 400, broken.text
    ids = httpx.post(f"{url}/v1/completions", json=request(0, 0, prompt=[5, 6, 7]), timeout=60)
    assert ids.status_code == 200, ids.text


def test_what_the_engine_was_asked_for_is_in_effect(deploy, capsys):
    dashboard = deploy("serve.replicas=2", "serve.routing=prefix")
    code = jobs.serve.command(["--show-effective", "--dashboard", dashboard])
    assert code == 0, capsys.readouterr().out


def test_load_brings_a_replica_and_its_end_takes_it_away(deploy):
    scaling = "{max_replicas: 2, target_ongoing_requests: 2, upscale_delay_s: 1, downscale_delay_s: 2}"
    dashboard = deploy(f"serve.autoscaling={scaling}")
    url = client.status(dashboard).url
    assert len(answered(dashboard)) == 1
    statuses = []

    async def keep_asking(http, stop):
        while not stop.is_set():
            sent = request(3, 3, prompt="3 + 4 = ?", max_tokens=200)
            statuses.append((await http.post(f"{url}/v1/completions", json=sent)).status_code)

    async def until(count, what):
        end = time.monotonic() + CHANGE_S
        while len(await asyncio.to_thread(answered, dashboard)) != count:
            assert time.monotonic() < end, f"{what} within {CHANGE_S} s"
            await asyncio.sleep(0.5)

    async def scenario():
        stop = asyncio.Event()
        async with httpx.AsyncClient(timeout=120) as http:
            load = [asyncio.create_task(keep_asking(http, stop)) for _ in range(8)]
            try:
                await until(2, "no second replica came")
            finally:
                stop.set()
                await asyncio.gather(*load)
        await until(1, "the second replica did not go")

    asyncio.run(scenario())
    assert set(statuses) == {200}
