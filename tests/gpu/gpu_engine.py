"""Engines on a GPU, each in a process of its own, with the endpoint's arguments. Not yet run on one."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import ROOT, load_config
from pipeline.config.schema_serving import Reasoning
from pipeline.engine import EngineOptions
from serve.levers import engine_kwargs

MODEL = os.environ.get("GPU_TEST_MODEL", str(ROOT / "infra/models/tiny"))
DEADLINE_S = 900
CONTEXT = min(4096, json.loads((Path(MODEL) / "config.json").read_text())["max_position_embeddings"])
SIZES = f"engine={{dtype: bfloat16, max_model_len: {CONTEXT}, max_num_seqs: 64}}"
USUAL = [SIZES, "rollout.max_new_tokens=128"]

# Reads {"engine": options, "prompts": token ids, "tokens": most of a reply} and writes what became of them.
ENGINE = """
import json, sys
job = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams
llm = LLM(**job["engine"])
params = SamplingParams(temperature=0.0, max_tokens=job["tokens"], ignore_eos=True, detokenize=False, logprobs=0)
llm.generate({"prompt_token_ids": job["prompts"][-1]}, params, use_tqdm=False)
llm.reset_prefix_cache()
outs = llm.generate([{"prompt_token_ids": ids} for ids in job["prompts"]], params, use_tqdm=False)
cache = llm.llm_engine.vllm_config.cache_config
json.dump({
    "token_ids": [list(out.outputs[0].token_ids) for out in outs],
    "logprobs": [[e[t].logprob for e, t in zip(o.outputs[0].logprobs, o.outputs[0].token_ids)] for o in outs],
    "first_token_s": [out.metrics.first_token_latency for out in outs],
    "capacity": cache.num_gpu_blocks * cache.block_size,
    "weight_bytes": llm.apply_model(lambda model: sum(p.numel() * p.element_size() for p in model.parameters()))[0],
}, open(sys.argv[2], "w"))
"""


@dataclass(frozen=True)
class Ran:
    """What an engine did; `error` is the end of what it wrote where it did not start."""

    token_ids: list
    logprobs: list
    first_token_s: list
    capacity: int
    weight_bytes: int
    error: str = ""


def run(folder, prompts, tokens, *overrides, cfg=None, model=MODEL, **vllm):
    """Greedy replies [prompt][tokens] of an engine with these options of ours (or those of `cfg`), and with engine
    arguments beyond them."""
    folder.mkdir(parents=True)
    cfg = cfg or load_config(None, [*USUAL, *overrides])
    cfg = cfg.model_copy(update={"reasoning": Reasoning(parser=None)})  # it would need the tokenizer
    levers = engine_kwargs(EngineOptions.from_config(cfg.engine), cfg)
    engine = levers | {"model": model, "skip_tokenizer_init": True, "disable_log_stats": False} | vllm
    job, answer = folder / "job.json", folder / "answer.json"
    job.write_text(json.dumps({"engine": engine, "prompts": prompts, "tokens": tokens}))
    env = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    env["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # for apply_model, in this process alone
    command = [sys.executable, "-c", ENGINE, str(job), str(answer)]
    done = subprocess.run(command, env=env, timeout=DEADLINE_S, capture_output=True, text=True, check=False)
    if done.returncode:
        return Ran([], [], [], 0, 0, done.stderr[-4000:])
    return Ran(**json.loads(answer.read_text()))
