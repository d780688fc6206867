"""Speculation under a policy in a real endpoint: over HTTP, with caps, counted, and across a swap of the weights."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serve import client
from serve.effective import differences
from serve.policy import Policy
from serve.speculation.exactness import first_difference
from serve.speculation.logs import read_decisions
from tests.serve.live_endpoint import dashboard_of, deploy, ray_head
from tests.serve.speculation.live_engine import MODEL, PROMPTS, expected, greedy_replies

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]
TOKENS = 96


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("speculating")


@pytest.fixture(scope="module")
def dashboard(home):
    spec = (
        "{method: ngram, k_max: 4, prompt_lookup_min: 1, prompt_lookup_max: 3, policy: goodput, "
        f"policy_options: {{dwell: 2, probe_every: 16}}, costs: {{draft_fixed: 0.01}}, log: {home}/d.jsonl}}"
    )
    with ray_head(home / "services") as head:
        deploy(head, MODEL, home / "results", engine__max_model_len=512, speculation=spec)
        yield dashboard_of(head)


@pytest.fixture(scope="module")
def url(dashboard):
    return client.status(dashboard).url


def ask(url, index, **options):
    """The reply to a prompt: its token ids, and how its drafts went."""
    body = {"model": "policy", "prompt": PROMPTS[index], "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
    body |= {"return_token_ids": True} | options
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=120, trust_env=False)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    return told["choices"][0]["token_ids"], (told.get("metrics") or {}).get("speculative_decoding")


def all_at_once(url, options):
    """Replies to all prompts, asked together: token ids by request, and what each was told of its drafts."""
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        found = list(pool.map(lambda index: ask(url, index, **options[index]), range(len(PROMPTS))))
    return {str(index): ids for index, (ids, _) in enumerate(found)}, [told for _, told in found]


def figure(url, name):
    """Sum over the samples of a counter."""
    lines = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_all_that_was_asked_for_is_in_effect(dashboard):
    rows = client.effective(dashboard)
    assert differences(rows) == []
    told = {row.name: row.effective for row in rows}
    assert told["scheduler_cls"].endswith("AdaptiveScheduler")
    assert told["additional_config.adaptive_speculation.policy"] == "goodput"


def test_replies_are_exact_and_caps_hold_for_each_request(url):
    caps = [0, 1, None, 9]
    options = [{} if cap is None else {"vllm_xargs": {"max_draft_tokens": cap}} for cap in caps]
    replies, told = all_at_once(url, options)
    assert first_difference(expected(TOKENS), replies) is None
    means = [one["mean_acceptance_length"] for one in told]
    print("mean acceptance lengths under caps", dict(zip(map(str, caps), means, strict=True)))
    assert means[0] <= 1 < means[1] <= 2 < max(means[2:])
    assert sum(told[0]["acceptance_histogram"]) == 0 or told[0]["draft_acceptance_rate"] == 0


def test_drafts_are_counted(url, home):
    drafted, accepted = (figure(url, f"vllm:spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted"))
    assert 0 < accepted <= drafted
    rows = list(read_decisions(home / "d.jsonl"))
    assert sum(sum(row.drafted) for row in rows) == drafted  # what is counted by vLLM is what the policy was told
    print(f"drafted {drafted:g}, accepted {accepted:g}, decisions {len(rows)}")


@pytest.mark.parametrize(("version", "mode"), [(1, "wait"), (2, "keep")])
def test_a_swap_while_speculating_leaves_replies_exact(dashboard, url, home, version, mode):
    import torch
    from transformers import AutoModelForCausalLM

    from pipeline.weights import write_snapshot

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    torch.manual_seed(version)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * weight.std() * 0.5)
    snapshot = write_snapshot(
        home / f"v{version}", model.state_dict(), version=version, step=version, parent=version - 1,
        config_digest="test", serving_dtype="float32", model_dir=MODEL,
    )  # fmt: skip
    with ThreadPoolExecutor(2) as pool:  # requests run while the weights change
        running = [pool.submit(ask, url, index, max_tokens=400) for index in range(2)]
        client.swap(dashboard, Policy(version, snapshot.uri, snapshot.manifest.digest, mode=mode), 60)
        assert all(len(one.result()[0]) == 400 for one in running)
    replies, told = all_at_once(url, [{}] * len(PROMPTS))
    want = greedy_replies(model, TOKENS)
    assert first_difference(want, replies) is None and want != expected(TOKENS)
    assert all(one["draft_acceptance_rate"] >= 0 for one in told if one)
