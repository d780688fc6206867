"""One rank of a small gloo group, outside Ray: `rank_process.py RANK WORLD FOLDER`. Writes FOLDER/WORLD-RANK.json.

Trains the tiny Llama of FOLDER/model at several ZeRO stages on the same batches, saves and resumes, and, alone, takes
over the checkpoint that two ranks wrote.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from tiny_llama import SERIES, make_streams

from pipeline.config.schema import Learner
from pipeline.learner import checkpoint, rank_batches
from pipeline.learner.deepspeed_engine import build_engine, full_state_dict, load_model, set_hyperparameters
from pipeline.learner.policy_step import train_batch

WIDTH, TEMPERATURE = 40, 0.8
NO_PERSISTENCE = {"stage3_param_persistence_threshold": 0}  # shard even the smallest tensors


class Rank:
    def __init__(self, rank: int, world: int, folder: Path) -> None:
        self.rank, self.world, self.folder = rank, world, folder

    def engine(self, stage: int, *, dtype: str = "float32", lr: float = 1e-2, universal: bool = False):
        learner = Learner(ranks=self.world, zero_stage=stage, lr=lr, grad_clip=0.5, micro_batch_tokens=WIDTH)
        model = load_model(str(self.folder / "model"), dtype)
        options = NO_PERSISTENCE if stage == 3 else None
        return build_engine(model, learner, zero_options=options, universal=universal), learner

    def step(self, engine, learner, step: int, *, minis: int = 1, masked: bool = False) -> dict[str, float]:
        streams = make_streams(step, rows=SERIES[step], masked=masked)
        batches = rank_batches(streams, batch_id=str(step), ranks=self.world, max_tokens=WIDTH, mini_batches=minis)
        return train_batch(engine, batches[self.rank], learner, TEMPERATURE)

    def meta(self, stage: int) -> checkpoint.CheckpointMeta:
        return checkpoint.CheckpointMeta(1, 2, "d", "float32", self.world, stage, "float32")

    def series(self, stage: int) -> dict:
        """All steps, with a checkpoint after the second; then the rest again from that checkpoint."""
        engine, learner = self.engine(stage)
        steps, saved = [], self.folder / f"saved{self.world}-{stage}"
        for step in range(len(SERIES)):
            steps.append(self.step(engine, learner, step))
            if step == 1:
                checkpoint.save(engine, saved / f"rank{self.rank}", self.meta(stage), {"ledger": [1, 2]})
                self.merge(saved)
        state = full_state_dict(engine)
        if self.rank == 0:
            torch.save(state, self.folder / f"state{self.world}-{stage}.pt")
        engine, learner = self.engine(stage)
        restored = checkpoint.load(engine, saved)
        set_hyperparameters(engine, learner)
        again = [self.step(engine, learner, step) for step in range(2, len(SERIES))]
        twice = full_state_dict(engine)
        same = list(state) == list(twice) and all(torch.equal(state[name], twice[name]) for name in state)
        return {"steps": steps, "again": again, "same": same, "restored": restored}

    def merge(self, saved: Path) -> None:
        """Each rank wrote a folder of its own; together they are the checkpoint."""
        dist.barrier()
        for path in sorted((saved / f"rank{self.rank}").rglob("*")):
            if path.is_file():
                target = saved / path.relative_to(saved / f"rank{self.rank}")
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
        dist.barrier()

    def moves_nothing(self, stage: int, **changes) -> bool:
        """Whether lr 0, or a fully masked batch after a real step, leaves all weights as they were."""
        engine, learner = self.engine(stage, lr=changes.get("lr", 1e-2))
        if "lr" not in changes:
            self.step(engine, learner, 0)
        before = full_state_dict(engine)
        metrics = self.step(engine, learner, 2, masked=changes.get("masked", False))
        after = full_state_dict(engine)
        return all(torch.equal(before[name], after[name]) for name in before) and metrics["loss"] == metrics["loss"]

    def minis(self, stage: int) -> list[dict]:
        engine, learner = self.engine(stage)
        return [self.step(engine, learner, step, minis=2) for step in (0, 2)]

    def bf16(self, stage: int) -> list[dict]:
        engine, learner = self.engine(stage, dtype="bfloat16", lr=1e-3)
        return [self.step(engine, learner, step) for step in (0, 2)]

    def take_over(self, stage: int) -> list[dict]:
        """Continue from the checkpoint of two ranks, converted where its shards need it."""
        saved = self.folder / f"saved2-{stage}"
        meta = checkpoint.read_meta(saved)
        tag = checkpoint.TAG
        if checkpoint.needs_conversion(meta, self.world, stage, "float32"):
            tag, target = checkpoint.UNIVERSAL_TAG, self.folder / f"universal{stage}"
            checkpoint.convert(saved, target, meta, self.world)
            saved = target
        engine, learner = self.engine(stage, universal=tag == checkpoint.UNIVERSAL_TAG)
        restored = checkpoint.load(engine, saved, tag)
        assert restored == {"ledger": [1, 2]}, restored
        set_hyperparameters(engine, learner)
        return [self.step(engine, learner, step) for step in range(2, len(SERIES))]


def pair(rank: Rank) -> dict:
    report = {f"series{stage}": rank.series(stage) for stage in (0, 2, 3)}
    (rank.folder / f"ready{rank.rank}").touch()
    report |= {f"still{stage}": rank.moves_nothing(stage, lr=0.0) for stage in (0, 2)}
    report |= {f"masked{stage}": rank.moves_nothing(stage, masked=True) for stage in (0, 2)}
    report |= {"minis2": rank.minis(2)}
    return report


def single(rank: Rank) -> dict:
    report = {f"series{stage}": rank.series(stage) for stage in (0, 2)}
    report |= {"minis0": rank.minis(0), "bf16_0": rank.bf16(0), "bf16_2": rank.bf16(2)}
    deadline = time.monotonic() + 400
    while not all((rank.folder / f"ready{other}").exists() for other in (0, 1)):
        if time.monotonic() > deadline:
            raise TimeoutError("the two ranks wrote no checkpoint within 400 s")
        time.sleep(0.2)
    return report | {f"take_over{stage}": rank.take_over(stage) for stage in (0, 2)}


def main() -> None:
    number, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    os.environ.update(RANK=str(number), WORLD_SIZE=str(world), LOCAL_RANK=str(number))
    dist.init_process_group("gloo", init_method=f"file://{folder}/group{world}", rank=number, world_size=world)
    report = (pair if world == 2 else single)(Rank(number, world, folder))
    (folder / f"{world}-{number}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
