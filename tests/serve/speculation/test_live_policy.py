"""Adaptive draft lengths in a real engine, with a drafter of known quality. Each engine has a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config import ROOT
from serve.speculation.costs import CostModel
from serve.speculation.exactness import compare_samples, first_difference
from serve.speculation.fit import timings
from serve.speculation.logs import read_decisions
from serve.speculation.settings import Settings, engine_options

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]
MODEL = ROOT / "infra" / "models" / "tiny"
PROMPTS = [list(range(10 + i, 22 + i)) for i in range(4)]
K_MAX = 4
COSTS = {"draft_fixed": 0.1}
DEADLINE_S = 240

# Reads a job {"engine": options, "params": [[keys of SamplingParams, one a prompt], ...]} and writes the token ids.
ENGINE = """
import json, sys
job = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams
llm = LLM(**job["engine"])
replies = []
for keys in job["params"]:
    params = [SamplingParams(detokenize=False, **one) for one in keys]
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    replies.append([[list(o.token_ids) for o in out.outputs] for out in llm.generate(prompts, params, use_tqdm=False)])
llm.llm_engine.engine_core.shutdown()
json.dump(replies, open(sys.argv[2], "w"))
"""


def run(folder, params, **engine):
    """Token ids [round][prompt][sample] of an engine in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = {
        "model": str(MODEL),
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 64,
        "block_size": 32,
        "kv_cache_memory_bytes": 64 << 20,
        "enable_prefix_caching": False,
    }
    job, answer = folder / "job.json", folder / "answer.json"
    job.write_text(json.dumps({"engine": shared | engine, "prompts": PROMPTS, "params": params}))
    env = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", ENGINE, str(job), str(answer)]
    done = subprocess.run(command, env=env, timeout=DEADLINE_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(answer.read_text())


def greedy(tokens=96, **keys):
    return [{"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, **keys} for _ in PROMPTS]


def by_request(replies):
    return {str(index): samples[0] for index, samples in enumerate(replies)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Greedy replies, and 60 sampled first words of each prompt, without speculation."""
    sampled = [{"temperature": 1.0, "max_tokens": 3, "n": 60, "seed": 5} for _ in PROMPTS]
    return run(tmp_path_factory.mktemp("plain"), [greedy(), sampled])


def oracle(folder, rate, plain, **settings):
    """Engine options with the noisy oracle of that rate and the goodput policy, and the path of the decision log."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [prompt + samples[0] for prompt, samples in zip(PROMPTS, plain[0], strict=True)]
    (folder / "texts.json").write_text(json.dumps(texts))
    log = folder / "decisions.jsonl"
    settings = Settings(costs=COSTS, log=str(log), **settings)
    speculative = {
        "method": "custom_class",
        "model": "serve.speculation.oracle.NoisyOracle",
        "num_speculative_tokens": K_MAX,
    }
    options = engine_options(settings, speculative)
    options["additional_config"]["noisy_oracle"] = {"replies": str(folder / "texts.json"), "rate": rate, "vocab": 301}
    return options, log


@pytest.mark.parametrize(("rate", "late"), [(1.0, K_MAX), (0.02, 0)])
def test_goodput_finds_the_length_and_the_words_stay_the_same(tmp_path, plain, rate, late):
    options, log = oracle(tmp_path, rate, plain, options={"probe_every": 20}, memory=str(tmp_path / "memory.json"))
    got = run(tmp_path / "engine", [greedy()], **options)
    assert first_difference(by_request(plain[0]), by_request(got[0])) is None
    rows = list(read_decisions(log))
    tail = rows[len(rows) // 2 :]
    assert sum(row.k == late for row in tail) >= 0.7 * len(tail)
    written = sum(len(samples[0]) - 1 for samples in got[0])  # each reply's first token comes from its prefill
    beyond = K_MAX * len(PROMPTS)  # the last step of a reply may emit more than its length leaves room for
    assert written <= sum(sum(row.emitted) for row in rows) <= written + beyond
    assert all(sum(row.drafted) <= sum(row.asked) for row in rows)
    costs = CostModel(**COSTS)
    for row in rows:
        tokens = len(row.asked) + sum(row.drafted)
        assert row.cost == pytest.approx(costs.draft(max(row.asked), len(row.asked)) + costs.verify(tokens))
    assert timings(rows)
    saved = json.loads(Path(tmp_path / "memory.json").read_text())
    assert saved["counters"]["observed"] == len(rows)


def test_caps_of_requests_are_kept(tmp_path, plain):
    options, log = oracle(tmp_path, 1.0, plain, policy="static", options={"k": 3})
    params = [dict(one, extra_args={"max_draft_tokens": cap} if cap is not None else None)
              for one, cap in zip(greedy(), (0, 1, None, 9), strict=True)]  # fmt: skip
    got = run(tmp_path / "engine", [params], **options)
    assert first_difference(by_request(plain[0]), by_request(got[0])) is None
    full = [row for row in read_decisions(log) if len(row.asked) == 4]
    assert full and all(sorted(row.asked) == [0, 1, 3, 3] for row in full)
    assert all(emitted == 1 for row in full for asked, emitted in zip(row.asked, row.emitted, strict=True) if not asked)


def test_ngram_under_a_changing_length(tmp_path, plain):
    settings = Settings("thompson", costs=COSTS, log=str(tmp_path / "d.jsonl"))
    options = engine_options(settings, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3})
    got = run(tmp_path / "engine", [greedy()], **options)
    assert first_difference(by_request(plain[0]), by_request(got[0])) is None
    assert len({row.k for row in read_decisions(tmp_path / "d.jsonl")}) > 1


def test_sampled_words_follow_the_same_law(tmp_path, plain):
    options, _ = oracle(tmp_path, 0.7, plain, policy="static", options={"k": 3})
    sampled = [{"temperature": 1.0, "max_tokens": 3, "n": 60, "seed": 77} for _ in PROMPTS]
    got = run(tmp_path / "engine", [sampled], **options)
    verdicts = []
    for before, after in zip(plain[1], got[0], strict=True):
        verdicts.append(compare_samples([tuple(s) for s in before], [tuple(s) for s in after]).verdict())
    assert "different" not in verdicts
