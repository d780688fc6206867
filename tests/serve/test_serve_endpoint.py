"""A real endpoint on a Ray head of its own: swaps under load, refusals, and what replies carry."""

import asyncio
import contextlib
import json
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jobs._services import read_state
from pipeline.problems.tiny_tokenizer import build_tokenizer, save_tokenizer
from pipeline.weights import write_snapshot
from serve import client
from serve.policy import Policy, fingerprint
from tests.serve.live_endpoint import dashboard_of, deploy, ray_head

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUESTION = [{"role": "user", "content": "3 + 4 = ?"}]
VERSIONS = 4


def tiny_model(seed):
    """A random Llama with tied embeddings; large weights, so that greedy choices are far apart."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(build_tokenizer()),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    home = tmp_path_factory.mktemp("snapshots")
    save_tokenizer(home / "base")
    tiny_model(0).save_pretrained(home / "base")
    made = []
    for version in range(VERSIONS):
        made.append(
            write_snapshot(
                home / f"v{version}",
                tiny_model(version).state_dict(),
                version=version,
                step=version,
                parent=version - 1 if version else None,
                config_digest="test",
                serving_dtype="float32",
                model_dir=home / "base",
            )
        )
    return made


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    with ray_head(tmp_path_factory.mktemp("services")) as folder:
        yield folder


@pytest.fixture(scope="module")
def dashboard(head):
    return dashboard_of(head)


@pytest.fixture(scope="module")
def endpoint(head, dashboard, snapshots, tmp_path_factory):
    """Deployed by the command, from a plain model folder."""
    deploy(head, Path(snapshots[0].uri).parent / "base", tmp_path_factory.mktemp("results"))
    return client.status(dashboard)


def mark(snapshot):
    return fingerprint(snapshot.version, snapshot.manifest.digest)


def swap(dashboard, snapshot, **options):
    return client.swap(dashboard, Policy(snapshot.version, snapshot.uri, snapshot.manifest.digest, **options), 60)


def until_inside(dashboard, count):
    """Waits until that many requests run in the replica."""
    deadline = time.monotonic() + 60
    while sum(reply["inside"] for reply in client.status(dashboard).replicas.values()) < count:
        assert time.monotonic() < deadline, "no request reached the replica within 60 s"
        time.sleep(0.02)


def body(**options):
    usual = {"max_tokens": 120, "ignore_eos": True, "temperature": 1.0}
    return {"model": "policy", "messages": QUESTION} | usual | options


async def whole(http, url, **options):
    """(marks in the reply, header, token count)"""
    reply = await http.post(f"{url}/v1/chat/completions", json=body(return_token_ids=True, **options))
    assert reply.status_code == 200, reply.text
    parsed = reply.json()
    return {parsed["system_fingerprint"]}, reply.headers["x-policy-version"], len(parsed["choices"][0]["token_ids"])


async def streamed(http, url, **options):
    marks, tokens, ended = set(), 0, False
    sent = body(return_token_ids=True, stream=True, stream_options={"include_usage": True}, **options)
    async with http.stream("POST", f"{url}/v1/chat/completions", json=sent) as reply:
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                chunk = json.loads(line[len("data: ") :])
                marks.add(chunk["system_fingerprint"])
                tokens += sum(len(choice.get("token_ids") or ()) for choice in chunk["choices"])
    assert ended
    return marks, reply.headers["x-policy-version"], tokens


def greedy(snapshot, prompt_ids, count):
    ids = torch.tensor([prompt_ids])
    with torch.no_grad():
        made = tiny_model(snapshot.version).generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False)
    return made[0, len(prompt_ids) :].tolist()


def ask(endpoint, **options):
    reply = httpx.post(f"{endpoint.url}/v1/chat/completions", json=body(**options), timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_replies_name_their_weights_and_part_reasoning_from_answer(endpoint, snapshots):
    think_end = build_tokenizer().convert_tokens_to_ids("</think>")
    reply = ask(endpoint, max_tokens=8, return_token_ids=True, logit_bias={str(think_end): 100})
    assert reply["model"] == "policy" and reply["system_fingerprint"] == mark(snapshots[0])
    choice = reply["choices"][0]
    assert choice["token_ids"] == [think_end] * 8
    assert not choice["message"]["reasoning"] and "<think>" not in (choice["message"]["content"] or "")
    open_ended = ask(endpoint, max_tokens=8, logit_bias={str(think_end): -100})["choices"][0]["message"]
    assert open_ended["reasoning"] and not open_ended["content"]
    assert httpx.post(f"{endpoint.url}/v1/chat/completions", json=body(model="other"), timeout=60).status_code == 404
    listed = httpx.get(f"{endpoint.url}/v1/models", timeout=60).json()["data"]
    assert [entry["id"] for entry in listed] == ["policy"]


def test_requests_stand_in_the_access_log_and_in_serves_figures(head, endpoint):
    """They take the short path past Serve's own handling."""
    before = taken(endpoint)
    home = Path(read_state(head)["ray"].temp_dir)
    (log,) = (home / "session_latest/logs/serve").glob("access_*.log")
    for _ in range(3):  # on a route that no other test here asks for
        sent = {"model": "policy", "prompt": "3 + 4 = ?", "max_tokens": 2}
        assert httpx.post(f"{endpoint.url}/v1/completions", json=sent, timeout=60).status_code == 200
    assert taken(endpoint) == before + 3
    deadline = time.monotonic() + 60
    while len(lines := completions(log)) < 3 or serve_count(home) < 3:
        assert time.monotonic() < deadline, f"{lines}, and Serve counts {serve_count(home)} after 60 s"
        time.sleep(0.5)
    assert len(lines) == 3 and serve_count(home) == 3
    assert re.fullmatch(r"\S+ \S+ POST /v1/completions 200 [\d.]+ ms key=anonymous mark=v0-\w{8}", lines[-1])


def taken(endpoint):
    (state,) = httpx.get(f"{endpoint.url}/admin/version", timeout=60).json()["replicas"]
    return state["short_path"]


def completions(log):
    return [line for line in log.read_text().splitlines() if "POST /v1/completions 200 " in line]


def serve_count(home):
    """Completions in Serve's own figures."""
    (job,) = json.loads((home / "prom_metrics_service_discovery.json").read_text())
    lines = []
    for target in job["targets"]:
        with contextlib.suppress(httpx.TransportError):  # named before it listens: asked again until the deadline
            lines += httpx.get(f"http://{target}/metrics", timeout=60, trust_env=False).text.splitlines()
    lines = [line for line in lines if line.startswith("ray_serve_num_http_requests_")]
    ours = [line for line in lines if 'route="/v1/completions"' in line and 'status_code="200"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in ours)


def test_two_swaps_under_load_mix_no_reply_and_fail_none(dashboard, endpoint, snapshots):
    reports, returned_at = [], []
    sent = threading.Event()

    def swap_twice():
        sent.wait(30)
        for snapshot in snapshots[1:3]:
            until_inside(dashboard, 1)
            reports.append(swap(dashboard, snapshot))
            returned_at.append(time.monotonic())

    async def load():
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(timeout=120, limits=limits) as http:
            kinds = [streamed if i % 2 else whole for i in range(60)]
            running = [asyncio.create_task(kind(http, endpoint.url, seed=i)) for i, kind in enumerate(kinds)]
            sent.set()
            replies = await asyncio.gather(*running)
            while len(returned_at) < 2:
                replies += await asyncio.gather(whole(http, endpoint.url), streamed(http, endpoint.url))
            after = await asyncio.gather(*(kind(http, endpoint.url) for kind in kinds[:10]))
        return replies, after

    with ThreadPoolExecutor(1) as pool:
        swapping = pool.submit(swap_twice)
        replies, after = asyncio.run(load())
        swapping.result()
    known = {mark(snapshot) for snapshot in snapshots[:3]}
    for marks, header, tokens in [*replies, *after]:
        assert len(marks) == 1 and marks <= known and header in marks and tokens == 120
    assert {header for _, header, _ in after} == {mark(snapshots[2])}
    assert len({header for _, header, _ in replies}) >= 2
    assert [report.version for report in reports] == [1, 2]
    for report in reports:
        assert len(report.replicas) == 1 and all(reply["mixed"] == 0 for reply in report.replicas.values())
        print(f"swap to {report.version}: {report.seconds:.2f} s, {list(report.replicas.values())}")


def test_after_a_swap_the_engine_computes_with_the_new_weights(endpoint, snapshots):
    reply = ask(endpoint, max_tokens=16, temperature=0, return_token_ids=True)
    assert reply["system_fingerprint"] == mark(snapshots[2])
    expected = greedy(snapshots[2], reply["prompt_token_ids"], 16)
    assert reply["choices"][0]["token_ids"] == expected
    assert expected != greedy(snapshots[1], reply["prompt_token_ids"], 16)


def test_damaged_snapshot_is_refused_and_the_old_version_serves(dashboard, endpoint, snapshots, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(snapshots[3].uri, damaged)
    weights = damaged / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-100] ^= 0xFF
    weights.write_bytes(data)
    with pytest.raises(client.SwapRefused, match="sha256 differs|NaN"):
        client.swap(dashboard, Policy(3, str(damaged), snapshots[3].manifest.digest), 60)
    assert ask(endpoint, max_tokens=2)["system_fingerprint"] == mark(snapshots[2])
    replies = client.status(dashboard).replicas.values()
    assert [(reply["version"], reply["refusals"]) for reply in replies] == [(2, 1)]
    config = client.details(dashboard)["applications"][client.APP]["deployed_app_config"]
    assert config["deployments"][0]["user_config"]["version"] == 2  # a new replica would come up on it


def test_mode_keep_marks_replies_that_ran_across_the_swap(dashboard, endpoint, snapshots):
    async def client_of(http, over):
        replies = [await streamed(http, endpoint.url, max_tokens=450)]
        while not over.is_set():
            replies.append(await streamed(http, endpoint.url, max_tokens=450))
        return replies

    async def load():
        over = asyncio.Event()
        async with httpx.AsyncClient(timeout=120) as http:
            clients = [asyncio.create_task(client_of(http, over)) for _ in range(8)]
            try:
                await asyncio.to_thread(until_inside, dashboard, 1)
                await asyncio.to_thread(swap, dashboard, snapshots[3], mode="keep")
            finally:
                over.set()
            return [reply for replies in await asyncio.gather(*clients) for reply in replies]

    old, new = mark(snapshots[2]), mark(snapshots[3])
    across = f"{old}+{new}"
    replies = asyncio.run(load())
    for marks, header, tokens in replies:
        assert (header == old and marks in ({old}, {old, across})) or (header == new and marks == {new})
        assert tokens == 450
    assert any(across in marks for marks, _, _ in replies)
