"""Prefixes between engines and tiers on GPUs, where a CPU cannot tell. `-m gpu`; the first needs two. Not yet run."""

import json
import os
import subprocess
import sys
import time

import pytest

from pipeline.config import ROOT
from tests.gpu.gpu_engine import MODEL
from tests.serve.kv_tier.live_tiers import TierEngine, prompt

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]

DIGEST = "d" * 64
# What the engine that computes a prompt is told, so that it keeps the prompt's cache and says where it is.
KEEP = {"do_remote_decode": True, "do_remote_prefill": False}


class Engine:
    """An engine of `tests.gpu.transfer_engine` on one GPU."""

    def __init__(self, gpu, port):
        env = os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu), "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port)}
        env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.gpu.transfer_engine", MODEL]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, **pipes)

    def ask(self, ids, tokens, params=None):
        """One request; its reply."""
        self.process.stdin.write(json.dumps({"prompt": ids, "tokens": tokens, "params": params}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError("the engine ended")


def test_a_prefix_computed_by_one_engine_is_taken_by_another():
    first, second = Engine(0, 20710), Engine(1, 20711)
    try:
        ids = prompt(1, 800)
        alone = second.ask(prompt(1, 800), 24)  # computed by itself
        second.ask(prompt(2, 100), 1)
        where = first.ask(ids, 1, KEEP)["params"]
        assert where and where["do_remote_prefill"]
        other = first.ask(prompt(3, 800), 1, KEEP)["params"]
        taken = second.ask(prompt(3, 800), 24, other)
        assert taken["cached"] >= 768
        assert taken["token_ids"] == first.ask(prompt(3, 800), 24)["token_ids"]
        assert second.ask(ids, 24)["token_ids"] == alone["token_ids"]
    finally:
        for engine in (first, second):
            engine.process.stdin.close()
            engine.process.wait(60)


def first_token_s(engine, prompts):
    """Seconds to the last first token of prompts that come together, and the tokens that needed no computing."""
    start = time.perf_counter()
    names, cached = engine.begin(prompts, 1), {}
    while len(cached) < len(names):
        cached |= {out.request_id: out.num_cached_tokens for out in engine.engine.step() if out.finished}
    seconds = time.perf_counter() - start
    engine.settle()
    return seconds, sum(cached.values())


def test_seconds_to_the_first_token_by_tier(tmp_path):
    prompts, engine = [prompt(seed, 400) for seed in range(8)], TierEngine(MODEL, str(tmp_path / "disk"))
    engine.turn_to(DIGEST)
    first_token_s(engine, [prompt(99, 400)])  # kernels are chosen and compiled
    found = {"cold": first_token_s(engine, prompts), "engine": first_token_s(engine, prompts)}
    engine.forget()
    found["memory or disk"] = first_token_s(engine, prompts)
    engine.close()
    print(json.dumps(found))
    assert found["cold"][1] == 0
    assert found["engine"][1] >= 8 * 384 and found["memory or disk"][1] >= 8 * 256
