"""One of two engines with NIXL between them: `python -m tests.gpu.transfer_engine MODEL`. It answers one JSON line with
another: a request as {"prompt", "tokens", "params"}, its reply as {"token_ids", "cached", "params"}."""

import json
import sys

from pipeline.config import load_config
from pipeline.engine import EngineOptions
from serve.levers import engine_kwargs
from tests.gpu.gpu_engine import USUAL


def main():
    from vllm import LLM, SamplingParams

    cfg = load_config(None, [*USUAL, "engine.device=cuda", "kv.transfer={connector: nixl}", "reasoning={parser: null}"])
    given = engine_kwargs(EngineOptions.from_config(cfg.engine), cfg)
    engine = LLM(model=sys.argv[1], skip_tokenizer_init=True, **given)
    for line in sys.stdin:
        ask = json.loads(line)
        extra = {"kv_transfer_params": ask["params"]} if ask["params"] else None
        params = SamplingParams(
            temperature=0.0, max_tokens=ask["tokens"], ignore_eos=True, detokenize=False, extra_args=extra
        )
        (out,) = engine.generate([{"prompt_token_ids": ask["prompt"]}], params, use_tqdm=False)
        reply = {"token_ids": list(out.outputs[0].token_ids), "cached": out.num_cached_tokens}
        print(json.dumps(reply | {"params": out.kv_transfer_params}), flush=True)


if __name__ == "__main__":
    main()
