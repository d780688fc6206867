"""What every rank of the Ray Train worker group runs: pull a batch, take the step, hand on the weights.

The controller is a Ray actor with these methods; each must be idempotent for the same (attempt, step):

- `begin_attempt(token: str) -> int`: numbers attempts from 1; the same token gets the same number. An attempt is one
  life of the worker group; calls of an attempt older than the newest are stale.
- `restore(attempt, state)`: the state saved with the checkpoint that this attempt resumes from; None where it starts
  at step 0 (there is no checkpoint).
- `publish(attempt, step, version, folder, digest)`: returns once the engines confirmed the snapshot in `folder`. Each
  attempt begins with the weights it starts from (step -1, version 0 without a checkpoint), so no batch is ever sampled
  from weights the learner does not hold.
- `next_batch(attempt, step, rank) -> RankBatch | None`: None ends the run.
- `step_done(attempt, step, rank, metrics: dict[str, float])`
- `state(attempt, step)`: whatever `restore` needs; asked for once all ranks reported the step done.
- `checkpointed(attempt, step, info: dict)`: the checkpoint after `step` is committed; earlier batches may go.

Weights of version v are those after step v - 1; version 0 is the base model.
"""

import os
import shutil
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray.train
import torch
import torch.distributed as dist
from ray.train import Checkpoint

from pipeline.config import UserError, config_digest
from pipeline.config.schema import RunConfig
from pipeline.learner import checkpoint as checkpoints
from pipeline.learner.agreement import agree, from_rank_zero
from pipeline.learner.deepspeed_engine import (
    build_engine,
    full_state_dict,
    load_model,
    reference_logprobs,
    set_hyperparameters,
)
from pipeline.learner.policy_step import train_batch
from pipeline.learner.remote import ControllerClient
from pipeline.learner.streams import RankBatch
from pipeline.weights import Snapshot, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_THE_MAKING = "checkpoint-"
KEPT_SNAPSHOTS = 3  # local folders of the newest versions; older ones are deleted once a newer is confirmed


def train_function(config: dict[str, Any]) -> None:
    """Train until the controller has no more batches or `run.steps` is reached.

    `config`: `run` (RunConfig as plain data, paths absolute), `controller` and `namespace` (the actor's), `run_folder`
    (a local folder for snapshots and checkpoints in the making).
    """
    rank = LearnerRank(config)
    rank.start()
    step = rank.next_step
    while step < rank.cfg.run.steps and rank.train_step(step):
        step += 1
    rank.finish()


class LearnerRank:
    """One rank of one attempt. All public methods are collective."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.cfg = RunConfig.model_validate(config["run"])
        self.run_folder = Path(config["run_folder"])
        context = ray.train.get_context()
        self.rank, self.world, self.local_rank = (
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
        )
        if self.world != self.cfg.learner.ranks:
            raise UserError(f"learner.ranks is {self.cfg.learner.ranks} but the worker group has {self.world} ranks")
        if not torch.cuda.is_available():
            torch.set_num_threads(1)
        self.controller = ControllerClient(config["controller"], config["namespace"], self.cfg.loop.step_deadline_s)
        self.attempt = self._begin_attempt()
        self.next_step = 0
        self.saved_step = -1
        self.snapshot: Snapshot | None = None
        self.seconds: dict[str, float] = {}

    def _begin_attempt(self) -> int:
        """Rank 0 asks under a token of its own, so a repeated call would not count twice; the others are told."""
        mine = self.controller.call("begin_attempt", uuid.uuid4().hex) if self.rank == 0 else None
        return from_rank_zero(mine)

    def start(self) -> None:
        """Build the engine, restore the checkpoint if there is one, and publish the weights this attempt starts from;
        no rank returns before the engines confirmed them."""
        state, expected = None, None
        if self.local_rank == 0:
            clear_leftovers(self.run_folder)
        dist.barrier()
        found = ray.train.get_checkpoint()
        if found is None:
            self._build()
        else:
            with found.as_directory() as folder:
                expected = checkpoints.read_meta(Path(folder))
                state = self._resume(Path(folder), expected)
            self.next_step = expected.step + 1
            self.saved_step = expected.step
        if self.rank == 0:
            self.controller.call("restore", self.attempt, state)
        self._snapshot(self.next_step - 1)
        if expected is not None:
            self._compare(expected)
        self._publish(self.next_step - 1)
        agree(self.next_step, "the first step to train")

    def _build(self, universal: bool = False) -> None:
        torch.manual_seed(self.cfg.run.seed)
        learner = self.cfg.learner
        model = load_model(
            self.cfg.model.path, self.cfg.model.dtype, gradient_checkpointing=learner.gradient_checkpointing
        )
        self.engine = build_engine(model, learner, universal=universal)

    def _resume(self, folder: Path, meta: checkpoints.CheckpointMeta) -> Any:
        learner = self.cfg.learner
        tag = checkpoints.TAG
        if checkpoints.needs_conversion(meta, self.world, learner.zero_stage, self.cfg.model.dtype):
            tag, target = checkpoints.UNIVERSAL_TAG, self.run_folder / "universal" / f"attempt{self.attempt}"
            if self.local_rank == 0:
                print(f"learner: converting the checkpoint of {meta.ranks} ranks for {self.world}", flush=True)
                checkpoints.convert(folder, target, meta, self.world)
            dist.barrier()
            folder = target
        self._build(universal=tag == checkpoints.UNIVERSAL_TAG)
        state = checkpoints.load(self.engine, folder, tag)
        set_hyperparameters(self.engine, learner)
        return state

    def _compare(self, expected: checkpoints.CheckpointMeta) -> None:
        """The restored weights are the saved ones, or the attempt ends before it touched an engine."""
        if self.snapshot is None or expected.serving_dtype != self.cfg.engine.dtype:
            return
        found = self.snapshot.manifest.digest
        if found != expected.digest:
            raise RuntimeError(
                f"the checkpoint of step {expected.step} holds weights {expected.digest[:12]} "
                f"but {found[:12]} came out of it; nothing was published"
            )

    def train_step(self, step: int) -> bool:
        """One step from batch to confirmed weights; False where the controller has no more."""
        self.seconds = {}
        with self._timed("wait"):
            batch: RankBatch | None = self.controller.call("next_batch", self.attempt, step, self.rank)
        same = None if batch is None else (batch.batch_id, batch.digest, batch.global_tokens, batch.shape)
        agree(same, f"the batch of step {step}")
        if batch is None:
            return False
        with self._timed("train"):
            metrics = train_batch(self.engine, batch, self.cfg.learner, self.cfg.rollout.temperature)
        with self._timed("snapshot"):
            self._snapshot(step)
        metrics |= {f"seconds_{name}": value for name, value in self.seconds.items()}
        self.controller.call("step_done", self.attempt, step, self.rank, metrics)
        self._publish(step)
        self.next_step = step + 1
        if self.next_step % self.cfg.learner.checkpoint_every == 0 or self.next_step == self.cfg.run.steps:
            self._checkpoint(step, metrics)
        return True

    def finish(self) -> None:
        """Checkpoint the last step if it has none yet."""
        if self.next_step - 1 > self.saved_step:
            self._checkpoint(self.next_step - 1, {})

    def _snapshot(self, step: int) -> None:
        """Gather the weights and write them, on rank 0, in a folder of this attempt: a replayed step need not give
        the same bits on every device, and an engine may still read the folder of the attempt before."""
        state = full_state_dict(self.engine)
        reference = reference_logprobs(self.engine)
        if self.rank == 0:
            version = step + 1
            self.snapshot = write_snapshot(
                self.run_folder / "snapshots" / f"v{version}-a{self.attempt}",
                state,
                version=version,
                step=step,
                parent=version - 1 if version else None,
                config_digest=config_digest(self.cfg),
                serving_dtype=self.cfg.engine.dtype,
                model_dir=self.cfg.model.path,
                reference=reference,
            )

    def _publish(self, step: int) -> None:
        if self.snapshot is not None:
            snapshot = self.snapshot
            self.controller.call(
                "publish", self.attempt, step, snapshot.version, snapshot.uri, snapshot.manifest.digest
            )
            prune(self.run_folder / "snapshots", KEPT_SNAPSHOTS)

    def _checkpoint(self, step: int, metrics: dict[str, float]) -> None:
        """Save on all ranks, hand it to Ray Train, and tell the controller once it is committed."""
        dist.barrier()  # every rank has reported the step done before the controller is asked for its state
        state = self.controller.call("state", self.attempt, step) if self.rank == 0 else None
        digest = from_rank_zero(self.snapshot.manifest.digest if self.snapshot else None)
        meta = checkpoints.CheckpointMeta(
            step,
            step + 1,
            digest,
            self.cfg.engine.dtype,
            self.world,
            self.cfg.learner.zero_stage,
            self.cfg.model.dtype,
        )
        self.run_folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.run_folder, prefix=IN_THE_MAKING) as folder:
            checkpoints.save(self.engine, Path(folder), meta, state)
            ray.train.report(metrics | {"step": step}, checkpoint=Checkpoint.from_directory(folder))
        self.saved_step = step
        if self.rank == 0:
            self._confirm(step, meta)

    def _confirm(self, step: int, meta: checkpoints.CheckpointMeta) -> None:
        """`report` returns before the checkpoint counts; only a committed one may let the controller forget."""
        reported = ray.train.get_all_reported_checkpoints(
            ray.train.CheckpointConsistencyMode.COMMITTED, timeout_s=self.cfg.loop.step_deadline_s
        )
        if not any(one.metrics.get("step") == step for one in reported):
            raise TimeoutError(f"Ray Train did not commit the checkpoint of step {step} in time")
        newest = max(reported, key=lambda one: one.metrics.get("step", -1))
        self.controller.call("checkpointed", self.attempt, step, {"path": newest.checkpoint.path, **asdict(meta)})

    @contextmanager
    def _timed(self, name: str) -> "Iterator[None]":
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began


def clear_leftovers(run_folder: Path) -> None:
    """Delete what an attempt that was killed left half-done: checkpoints in the making and conversions."""
    for path in [*run_folder.glob(f"{IN_THE_MAKING}*"), run_folder / "universal"]:
        if path.is_dir():
            shutil.rmtree(path)


def prune(folder: Path, keep: int) -> None:
    """Delete all but the `keep` newest snapshot folders; what a reader still has open stays readable to it."""
    found = [path for path in folder.glob("v*-a*") if path.is_dir()]
    for path in sorted(found, key=os.path.getmtime)[:-keep]:
        shutil.rmtree(path)
