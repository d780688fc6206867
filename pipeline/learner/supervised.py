"""Supervised teaching with the learner's own engine: next-token cross-entropy on responses, under Ray Train.

A step's batch is a function of (seed, step) alone, so a resumed run sees what it would have seen.
"""

import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import torch
import torch.distributed as dist
from ray.train import Checkpoint

from pipeline.config import RunConfig, WarmStart, config_digest
from pipeline.learner import checkpoint as checkpoints
from pipeline.learner.deepspeed_engine import accumulate_and_step, build_engine, full_state_dict, load_model
from pipeline.learner.plan import plan_micro_batches
from pipeline.learner.policy_step import Collated, collate, score
from pipeline.learner.streams import TokenStreams
from pipeline.weights import write_snapshot

BLOCK = 24  # steps whose rows are drawn together and sorted by length, so that little of a batch is padding
PLAIN_HORIZON = 1.2  # the plain phase ends before its cosine does, at a tenth of the peak

Lesson = tuple[list[int], list[int]]  # prompt ids [P], response ids [T]
Draw = Callable[[random.Random, bool], Lesson]  # (rng, plain)


def rate_at(step: int, plan: WarmStart) -> float:
    """Warm-up and cosine from `lr` in the plain phase; a cosine from `overthink_lr` in the second."""
    if step < plan.warmup_steps:
        return plan.lr * (step + 1) / plan.warmup_steps
    if step < plan.plain_steps:
        return _cosine(plan.lr, step - plan.warmup_steps, PLAIN_HORIZON * plan.plain_steps - plan.warmup_steps, plan)
    start = max(plan.plain_steps, plan.warmup_steps)
    return _cosine(plan.overthink_lr, step - start, plan.steps - start, plan)


def _cosine(peak: float, done: int, horizon: float, plan: WarmStart) -> float:
    return peak * (plan.lr_floor + (1 - plan.lr_floor) * 0.5 * (1 + math.cos(math.pi * done / max(horizon, 1))))


def tokens_at(step: int, plan: WarmStart) -> int:
    """Padded tokens of the batch of `step`."""
    return plan.plain_tokens_per_step if step < plan.plain_steps else plan.tokens_per_step


def tokens_until(step: int, plan: WarmStart) -> int:
    """Padded tokens of the batches of steps 0 to `step`, that one included."""
    plain = min(step + 1, plan.plain_steps)
    return plain * plan.plain_tokens_per_step + (step + 1 - plain) * plan.tokens_per_step


def draw_block(draw: Draw, tokens: int, plain: bool, seed: int, block: int) -> list[list[Lesson]]:
    """The `BLOCK` batches of one block, each of about `tokens` padded tokens of alike lengths, in random order."""
    rng = random.Random(f"{seed}/{block}/{plain}")
    batches: list[list[Lesson]] = []
    while len(batches) < BLOCK:
        rows = sorted((draw(rng, plain) for _ in range(tokens // 16)), key=lambda row: len(row[0]) + len(row[1]))
        batches += _cut(rows, tokens)
    rng.shuffle(batches)
    return batches[:BLOCK]


def _cut(rows: Sequence[Lesson], tokens: int) -> list[list[Lesson]]:
    batches: list[list[Lesson]] = [[]]
    for row in rows:  # sorted, so the row at hand is the widest so far
        if batches[-1] and (len(batches[-1]) + 1) * (len(row[0]) + len(row[1])) > tokens:
            batches.append([])
        batches[-1].append(row)
    return batches


def lesson_streams(rows: Sequence[Lesson]) -> TokenStreams:
    """Lessons as token streams: every response token is in the loss."""
    return TokenStreams(
        input_ids=tuple(np.array([*prompt, *response], dtype=np.int64) for prompt, response in rows),
        prompt_length=tuple(len(prompt) for prompt, _ in rows),
        advantages=tuple(np.zeros(len(response), dtype=np.float32) for _, response in rows),
        behaviour_logprobs=tuple(np.zeros(len(response), dtype=np.float32) for _, response in rows),
        mask=tuple(np.ones(len(response), dtype=bool) for _, response in rows),
        problem_id=tuple("" for _ in rows),
        versions=tuple(() for _ in rows),
    )


def supervised_function(config: dict[str, Any]) -> None:
    """For Ray Train. `config`: `run` (RunConfig as plain data), `plan` (WarmStart, the same), `folder` (the run's),
    `base` (a model folder with config and tokenizer), `make_draw(cfg) -> Draw`, `namespace` of the actor `tracker`."""
    teach(Teacher(config))


def teach(teacher: "Teacher") -> None:
    """From the checkpoint, if there is one, to the written model. Collective."""
    for step in range(teacher.first_step, teacher.plan.steps):
        teacher.step(step)
    teacher.write()


class Teacher:
    """One rank of the teaching. All public methods are collective."""

    def __init__(self, config: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self.cfg = RunConfig.model_validate(config["run"])
        self.plan = WarmStart.model_validate(config["plan"])
        self.folder, self.base = Path(config["folder"]), config["base"]
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.draw: Draw = config["make_draw"](self.cfg)
        self.tracker = ray.get_actor("tracker", namespace=config["namespace"])
        self.engine = build_engine(self.model(), self.cfg.learner)
        self.first_step = 0
        self.block: tuple[tuple[int, bool], list[list[Lesson]]] = ((-1, False), [])
        found = ray.train.get_checkpoint()
        if found:
            with found.as_directory() as folder:
                meta = checkpoints.read_meta(Path(folder))
                checkpoints.load(self.engine, Path(folder))
                self.first_step = meta.step + 1

    def model(self) -> torch.nn.Module:
        """What is taught."""
        return first_model(self.base, self.cfg.run.seed)

    def score(self, batch: Collated) -> torch.Tensor:
        """The loss (nats) of each of the N response tokens of a micro-batch."""
        return -score(self.engine, batch, temperature=1.0)

    def step(self, step: int) -> None:
        """One optimiser step; logs and checkpoints when due."""
        began = time.perf_counter()
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate_at(step, self.plan)
        rows = lesson_streams(self._rows(step))
        micros = plan_micro_batches(rows.lengths, self.world, self.cfg.learner.micro_batch_tokens)[self.rank]
        total = torch.zeros(1, dtype=torch.float64)
        norm = accumulate_and_step(self.engine, [self._loss(rows, micro, total) for micro in micros])
        dist.all_reduce(total)
        if self.rank == 0:
            self._log(step, float(total), norm, time.perf_counter() - began)
        if (step + 1) % self.plan.checkpoint_every == 0 and step + 1 < self.plan.steps:
            self._checkpoint(step)

    def _rows(self, step: int) -> list[Lesson]:
        number, index = divmod(step, BLOCK)
        plain = step < self.plan.plain_steps
        if self.block[0] != (number, plain):
            tokens = tokens_at(step, self.plan)
            self.block = ((number, plain), draw_block(self.draw, tokens, plain, self.cfg.run.seed, number))
        return self.block[1][index]

    def _loss(self, rows: TokenStreams, micro: list[int], total: torch.Tensor) -> Callable[[], torch.Tensor]:
        def compute() -> torch.Tensor:
            batch = collate(rows.take(micro), self.engine.device)
            loss = self.score(batch).sum() / rows.tokens
            total.add_(loss.detach().double().cpu())
            return loss

        return compute

    def _log(self, step: int, loss: float, norm: float, seconds: float) -> None:
        if step % self.plan.log_every and step + 1 < self.plan.steps:
            return
        numbers = {
            "supervised_loss": loss,
            "supervised_lr": rate_at(step, self.plan),
            "supervised_tokens": tokens_until(step, self.plan),
            "supervised_seconds": seconds,
            "grad_norm": norm,
        }
        ray.get(self.tracker.log_step.remote(step, numbers), timeout=120)

    def _checkpoint(self, step: int) -> None:
        learner = self.cfg.learner
        meta = checkpoints.CheckpointMeta(step, 0, "", "", self.world, learner.zero_stage, self.cfg.model.dtype)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="checkpoint-") as folder:
            shared = [folder]
            dist.broadcast_object_list(shared)  # one folder for all ranks, rank 0's
            checkpoints.save(self.engine, Path(shared[0]), meta, None)
            dist.barrier()
            mine = Checkpoint.from_directory(shared[0]) if self.rank == 0 else None
            ray.train.report({"step": step}, checkpoint=mine)

    def write(self) -> None:
        """The taught model as a snapshot of version 0 in `<folder>/model`."""
        state = full_state_dict(self.engine)
        if self.rank == 0:
            write_snapshot(
                self.folder / "model",
                state,
                version=0,
                step=self.plan.steps - 1,
                parent=None,
                config_digest=config_digest(self.cfg),
                serving_dtype="bfloat16",
                model_dir=self.base,
            )


def first_model(base: str, seed: int) -> torch.nn.Module:
    """The causal language model in `base`; where the folder has no weights, an untrained one of the shape in its
    config.json, with the same weights for the same seed."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if any(Path(base).glob("*.safetensors")):
        return load_model(base, "float32")
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(base), dtype=torch.float32, attn_implementation="sdpa"
    ).train()


def fit_supervised(
    cfg: RunConfig,
    plan: WarmStart,
    folder: Path,
    base: str,
    make_draw: Callable[[RunConfig], Draw],
    namespace: str,
    function: Callable[[dict[str, Any]], None] = supervised_function,
) -> None:
    """Runs the teaching (`function` in each rank) under Ray Train; blocks to its end. Checkpoints go to
    `<folder>/train`."""
    from pipeline.learner.launch import run_trainer, torch_trainer

    settings = {
        "run": cfg.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
        "folder": str(folder),
        "base": base,
        "make_draw": make_draw,
        "namespace": namespace,
    }
    run_trainer(torch_trainer(cfg, function, settings, str(folder / "train")))
