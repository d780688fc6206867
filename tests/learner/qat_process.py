"""One gloo rank outside Ray that trains a rounded model at each ZeRO stage: `qat_process.py BASE FOLDER`.

Prints one JSON line: losses by stage, and whether the written folder, read back, computes the trained model's logits.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from pipeline.config import load_config
from pipeline.learner.deepspeed_engine import accumulate_and_step, build_engine
from pipeline.learner.policy_step import collate
from pipeline.learner.qat import RoundedStudent
from pipeline.learner.supervised import lesson_streams
from pipeline.quantization.folder import load_rounded
from pipeline.weights import verify

STEPS = 5


def student(base: str, folder: Path, stage: int) -> RoundedStudent:
    from jobs.qat import teaching_plan

    cfg = load_config(None, ["qat.bits=2", "qat.group=32", "learner.ranks=1", f"learner.zero_stage={stage}"])
    made = RoundedStudent.__new__(RoundedStudent)
    made.cfg, made.plan, made.base, made.folder, made.rank = cfg, teaching_plan(cfg), base, folder, 0
    made.engine = build_engine(made.model(), cfg.learner.model_copy(update={"lr": 3e-3}))
    return made


def trained(made: RoundedStudent, batch, tokens: int) -> list[float]:
    losses = []

    def loss() -> torch.Tensor:
        value = made.score(batch).sum() / tokens
        losses.append(value.item())
        return value

    for _ in range(STEPS):
        accumulate_and_step(made.engine, [loss])
    return losses


def same_logits(made: RoundedStudent, ids: torch.Tensor) -> bool:
    made.write()
    verify(made.folder / "model")
    read = AutoModelForCausalLM.from_pretrained(made.base, dtype=torch.float32).eval()
    load_rounded(read, made.folder / "model", made.grid)
    with torch.no_grad():
        return torch.equal(made.engine.module(input_ids=ids).logits, read(input_ids=ids).logits)


def main(base: str, folder: Path) -> None:
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rng = np.random.default_rng(0)
    rows = lesson_streams([(rng.integers(3, 48, 4).tolist(), rng.integers(3, 48, 20).tolist()) for _ in range(8)])
    found = {}
    for stage in (0, 1, 2):
        made = student(base, folder / str(stage), stage)
        losses = trained(made, collate(rows, made.engine.device), rows.tokens)
        ids = torch.from_numpy(rows.input_ids[0])[None]
        found[stage] = {"losses": losses, "same": same_logits(made, ids)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
