"""Real engines for tests, each in a process of its own (a third one in a process fails), and what they must write."""

import json
import os
import subprocess
import sys
from functools import cache

from pipeline.config import ROOT
from pipeline.engine.options import WORKER_EXTENSION

MODEL = ROOT / "infra" / "models" / "tiny"
VOCAB = 301
PROMPTS = [list(range(10 + i, 22 + i)) for i in range(4)]
DEADLINE_S = 240

# Reads {"engine": options, "prompts": ids, "params": [[keys of SamplingParams, one a prompt], ...], "repeat": {...}};
# writes the token ids and, where vLLM was asked for it, each request's acceptance.
ENGINE = """
import json, sys
job = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams
llm = LLM(**job["engine"])
replies, told = [], []
for keys in job["params"]:
    params = [SamplingParams(detokenize=False, **one) for one in keys]
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    replies.append([[list(o.token_ids) for o in out.outputs] for out in outputs])
    metrics = [out.outputs[0].spec_decode_metrics for out in outputs]
    told.append([m.to_dict() if m else None for m in metrics])
from prometheus_client import REGISTRY
figures = {s.name + "/" + "/".join(s.labels.values()): s.value
           for f in REGISTRY.collect() if f.name.startswith("speculation_") for s in f.samples}
llm.llm_engine.engine_core.shutdown()
json.dump({"replies": replies, "told": told, "figures": figures}, open(sys.argv[2], "w"))
"""


def run(folder, params, **engine):
    """`replies` [round][prompt][sample] of token ids, `told` [round][prompt] of vLLM's acceptance of the request, and
    `figures`, our own counters, of an engine in a process of its own."""
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
        "async_scheduling": False,
        "worker_extension_cls": WORKER_EXTENSION,
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
    return {str(index): list(samples[0]) for index, samples in enumerate(replies)}


@cache
def expected(tokens=96, model=MODEL):
    """The model's own greedy replies by request, without any engine."""
    import torch
    from transformers import AutoModelForCausalLM

    return greedy_replies(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval(), tokens)


def greedy_replies(model, tokens=96):
    """Greedy replies of a transformers model to PROMPTS, by request."""
    import torch

    texts = torch.tensor(PROMPTS)  # of one length
    with torch.no_grad():
        for _ in range(tokens):
            texts = torch.cat([texts, model(texts).logits[:, -1:].argmax(-1)], dim=1)
    return {str(index): text[len(PROMPTS[0]) :] for index, text in enumerate(texts.tolist())}


def oracle_options(folder, settings, k_max, **oracle):
    """Engine options for the noisy oracle, which knows `expected()`, under a policy."""
    from serve.speculation.settings import engine_options

    folder.mkdir(parents=True, exist_ok=True)
    texts = [prompt + reply for prompt, reply in zip(PROMPTS, expected().values(), strict=True)]
    (folder / "texts.json").write_text(json.dumps(texts))
    speculative = {
        "method": "custom_class",
        "model": "serve.speculation.oracle.NoisyOracle",
        "num_speculative_tokens": k_max,
    }
    options = engine_options(settings, speculative)
    options["additional_config"]["noisy_oracle"] = {"replies": str(folder / "texts.json"), "vocab": VOCAB, **oracle}
    return options
