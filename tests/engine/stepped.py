"""An in-process engine with the endpoint's own arguments, driven step by step: tests count steps, not seconds."""

import gc
from dataclasses import dataclass, field

from pipeline.config import ROOT, load_config
from pipeline.engine import EngineOptions
from serve.levers import engine_kwargs

TINY = str(ROOT / "infra/models/tiny")
SIZES = ["engine.max_model_len=512", "engine.max_num_seqs=8", f"engine.kv_cache_bytes={32 << 20}"]
USUAL = ["reasoning={parser: null}", "rollout.max_new_tokens=256", *SIZES]


@dataclass
class Record:
    """What became of one request: tokens scheduled at each step, steps of the first and last token, and its reply."""

    scheduled: dict[int, int] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    token_ids: list = field(default_factory=list)
    logprobs: list = field(default_factory=list)
    cached: int = 0


class Stepped:
    """One engine. `vllm` are engine arguments beyond those that the endpoint gives it."""

    def __init__(self, *overrides, **vllm):
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        cfg = load_config("infra/presets/tiny.yaml", [*USUAL, *overrides])
        levers = engine_kwargs(EngineOptions.from_config(cfg.engine), cfg)
        torch.set_num_threads(1)
        self.engine = LLMEngine.from_engine_args(EngineArgs(model=TINY, skip_tokenizer_init=True, **levers | vllm))
        torch.set_num_threads(1)
        self.config = self.engine.vllm_config
        self.scheduler = self.engine.engine_core.engine_core.scheduler
        self.steps = 0
        self.records = {}
        self._names = 0
        self._schedule, self.scheduler.schedule = self.scheduler.schedule, self._recorded

    def _recorded(self, *args, **keys):
        output = self._schedule(*args, **keys)
        for name, count in output.num_scheduled_tokens.items():
            self.records[name.rpartition("-")[0] or name].scheduled[self.steps] = count
        return output

    def add(self, prompt, tokens, priority=0, salt=None, **params):
        """Hands a request in; its name."""
        from vllm import SamplingParams

        self._names += 1
        name = f"r{self._names}"
        self.records[name] = Record()
        usual = {"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, "detokenize": False, "logprobs": 0}
        ids = {"prompt_token_ids": list(prompt)} | ({"cache_salt": salt} if salt else {})
        self.engine.add_request(name, ids, SamplingParams(**usual | params), priority=priority)
        return name

    def step(self):
        """One step of the engine."""
        for out in self.engine.step():
            record, reply = self.records[out.request_id], out.outputs[0]
            if reply.token_ids and not record.first:
                record.first = self.steps
            record.token_ids, record.last, record.cached = list(reply.token_ids), self.steps, out.num_cached_tokens
            if out.finished:
                pairs = zip(reply.logprobs, reply.token_ids, strict=True)
                record.logprobs = [entry[token].logprob for entry, token in pairs]
        self.steps += 1

    def finish(self, *names):
        """Steps until all are done; their records."""
        limit = self.steps + 5000
        while self.engine.has_unfinished_requests():
            assert self.steps < limit, "the engine does not finish"
            self.step()
        return [self.records[name] for name in names]

    @property
    def capacity(self):
        """Tokens the KV cache holds, by the engine's own count."""
        return self.config.cache_config.num_gpu_blocks * self.config.cache_config.block_size

    def close(self):
        """Ends it; another engine of this process can start then."""
        self.scheduler.schedule = self._schedule
        self.engine.engine_core.shutdown()
        self.engine.renderer.shutdown()
        del self.engine, self.scheduler, self._schedule
        gc.collect()


class Engines:
    """One engine at a time, by name: vLLM keeps what is global to a process."""

    def __init__(self, kinds):
        self.kinds, self.name, self.live, self.kept = kinds, None, None, {}

    def get(self, name):
        """The engine of that name; another one is ended first."""
        if name != self.name:
            self.close()
            overrides, vllm = self.kinds[name]
            self.live, self.name = Stepped(*overrides, **vllm), name
        return self.live

    def once(self, name, make):
        """What `make(engine)` said, the first time it was asked of that engine."""
        if name not in self.kept:
            self.kept[name] = make(self.get(name))
        return self.kept[name]

    def close(self):
        """Ends the engine that is there."""
        if self.live is not None:
            self.live.close()
        self.live = self.name = None
