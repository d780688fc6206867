"""A real engine with KV cache tiers, in this process or (as a program) in one of its own.

`python -m tests.serve.kv_tier.live_tiers MODEL DISK`: answers PROMPTS with the weights of the folder MODEL and prints
the tokens, the cached prompt tokens and the tiers' counters as one line of JSON. DISK `-`: without tiers.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from pipeline.config import load_config
from pipeline.engine.options import EngineOptions, engine_env
from pipeline.weights import read_manifest
from serve.engine_config import FRONTEND
from serve.engine_weights import LOADING
from serve.kv_tier.block_file import file_size
from serve.kv_tier.quota import stored_files
from serve.kv_tier.replica_side import TierFolder
from serve.levers import check_levers, engine_kwargs

BLOCK_BYTES, BLOCK_TOKENS = 131072, 32  # of the tiny model in float32
DISK_BLOCKS = 40
DEADLINE_S = 60.0


def prompt(seed, tokens=200):
    """Token ids of no meaning, the same for a seed everywhere."""
    return random.Random(seed).choices(range(3, 300), k=tokens)


PROMPTS = [prompt(seed) for seed in range(4)]
WHOLE_BLOCKS = len(PROMPTS) * (200 // BLOCK_TOKENS)


class TierEngine:
    """vLLM's synchronous engine with the endpoint's arguments; `disk` None: no tiers."""

    def __init__(self, model, disk):
        changes = ["engine.max_model_len=512", f"engine.kv_cache_bytes={64 << 20}", "engine.max_num_seqs=16"]
        if disk:
            quota = DISK_BLOCKS * file_size(BLOCK_BYTES) / (1 << 30)
            changes.append(f"kv.tiers={{dram_gib: 0.006, disk: {{path: {disk}, max_gib: {quota}, threads: 2}}}}")
        config = load_config(None, changes)
        options = EngineOptions.from_config(config.engine)
        os.environ.update(engine_env(options) | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"})
        check_levers(config, options.device, model=json.loads((Path(model) / "config.json").read_text()))
        self.disk, self.tiers = disk, TierFolder(engine_kwargs(options, config))
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        given = {name: value for name, value in self.tiers.engine_kwargs.items() if name not in FRONTEND}
        self.engine = LLMEngine.from_engine_args(EngineArgs(model=str(model), **given))
        self._asked = 0

    def turn_to(self, digest):
        """As a replica does once it knows its weights."""
        self.tiers.mark(digest)
        assert self.engine.reset_prefix_cache(reset_connector=True)

    def swap(self, folder):
        """As a replica does, also while requests run."""
        manifest, deadline = read_manifest(folder), time.monotonic() + DEADLINE_S
        while not self._stopped():
            assert time.monotonic() < deadline, "blocks are on their way to a request for too long"
            self.engine.step()
        asked = (str(folder), manifest.version, manifest.digest)
        (loaded,) = self.engine.collective_rpc("load_snapshot", args=asked)
        self.turn_to(loaded["digest"])

    def _stopped(self):
        try:
            return self.engine.reset_prefix_cache(reset_running_requests=True)
        except RuntimeError as error:
            assert LOADING in str(error)
            return False

    def ask(self, prompts, tokens=12):
        """Greedy replies [n][tokens], and of each prompt the tokens that needed no computing."""
        names = self.begin(prompts, tokens)
        found, deadline = {}, time.monotonic() + DEADLINE_S
        while self.engine.has_unfinished_requests():
            assert time.monotonic() < deadline, "the engine did not answer"
            for output in self.engine.step():
                if output.finished:
                    found[output.request_id] = (list(output.outputs[0].token_ids), output.num_cached_tokens)
            time.sleep(0.001)
        self.settle()
        return [found[name][0] for name in names], [found[name][1] for name in names]

    def begin(self, prompts, tokens):
        """Adds requests; their names."""
        from vllm import SamplingParams

        names = [f"r{self._asked + number}" for number in range(len(prompts))]
        self._asked += len(prompts)
        params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        for name, ids in zip(names, prompts, strict=True):
            self.engine.add_request(name, {"prompt_token_ids": ids}, params)
        return names

    def settle(self):
        """Steps until every block is where it should be."""
        deadline = time.monotonic() + DEADLINE_S
        scheduler = self.engine.engine_core.engine_core.scheduler
        for _ in range(3):  # a step of its own may begin what another one ends
            self.engine.step()
        while scheduler.has_requests():
            assert time.monotonic() < deadline, "blocks are still under way"
            self.engine.step()
            time.sleep(0.001)

    def forget(self):
        """Drops what the engine itself caches, not what the tiers do."""
        assert self.engine.reset_prefix_cache()

    def counters(self):
        """Of the tiers, when they have told all they did so far."""
        time.sleep(1.3)
        return self.tiers.counters()

    def held(self):
        """Bytes of all files on the disk."""
        return sum(file.size for file in stored_files(Path(self.disk)))

    def close(self):
        self.engine.engine_core.shutdown()


def main():
    model, disk = sys.argv[1], sys.argv[2]
    engine = TierEngine(model, None if disk == "-" else disk)
    if disk != "-":
        engine.turn_to(read_manifest(model).digest)
    replies, cached = engine.ask(PROMPTS)
    print(json.dumps({"replies": replies, "cached": cached, "counters": engine.counters()}))
    engine.close()


if __name__ == "__main__":
    main()
