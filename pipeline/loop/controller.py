"""The controller: answers the learner's ranks with batches, hands new weights to the engines, remembers the run.

Ranks pull. A batch is kept until a checkpoint past it is committed, so a replayed step gets the same batch; and
publishing a version twice is harmless.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import RunConfig, UserError
from pipeline.engine.options import EngineOptions
from pipeline.grading import configure
from pipeline.judge import JudgeFailure
from pipeline.learner import RankBatch, rank_batches
from pipeline.loop.admission import capacity
from pipeline.loop.assemble import build_collector
from pipeline.loop.collect import Collected, Collector
from pipeline.loop.examples import step_views, trace_page
from pipeline.loop.gate import RunGate
from pipeline.loop.held_out import measure_held_out
from pipeline.loop.ledger import Ledger
from pipeline.loop.pool import EngineFailed, RolloutPool
from pipeline.loop.progress import step_line
from pipeline.loop.report_files import keep_step, step_name
from pipeline.loop.snapshots import keep_copy
from pipeline.loop.step_metrics import learner_metrics
from pipeline.loop.waiting import DeadlineExceeded, Waits

logger = logging.getLogger(__name__)


class ParityError(RuntimeError):
    """Engine and learner disagree about the same tokens under the same weights: one of them holds others."""


@dataclass
class Step:
    """One step's batch and how far it has come."""

    collected: Collected
    batches: list[RankBatch]
    started: float
    done: bool = False


class Controller:
    """One run's controller; made an actor by `run.py`. All methods may be called again with the same arguments."""

    def __init__(
        self, cfg: dict, run_folder: str, engines: Sequence[Any], judge: Any, tracker: Any, publisher: Any
    ) -> None:
        self.cfg = RunConfig.model_validate(cfg)
        self.folder, self.tracker, self.publisher = Path(run_folder), tracker, publisher
        self.waits = Waits()
        configure(self.cfg.grading.workers, self.cfg.grading.deadline_s)
        self.pool = RolloutPool(engines, self.waits, self.cfg.rollout.deadline_s)
        self.collector: Collector = build_collector(self.cfg, self.pool, judge, self.waits)
        self.gate = RunGate(self.collector, publisher) if publisher and self.cfg.publish.gate else None
        self.version, self.digest = 0, ""
        self.attempts: dict[str, int] = {}
        self.next_step = 0
        self.steps: dict[int, Step] = {}
        self.tasks: dict[int, asyncio.Task[Step]] = {}
        self.collecting = asyncio.Lock()
        self.published = asyncio.Condition()
        self.pending: Any = None
        self.lines: deque[tuple[int, str]] = deque(maxlen=500)
        self.stopped: Exception | None = None  # why the run ends early; ranks then checkpoint and stop
        self.handed_out = -1  # the newest step that any rank has got: the others must get it too

    async def begin_attempt(self, token: str) -> int:
        """A new number for a new (or restarted) group of ranks; the same token gets the same number."""
        return self.attempts.setdefault(token, len(self.attempts) + 1)

    def _fence(self, attempt: int) -> None:
        """A call of ranks that were replaced must change nothing."""
        if attempt < len(self.attempts):
            raise RuntimeError(f"attempt {attempt} is over; attempt {len(self.attempts)} has taken its place")

    # --- batches ---

    async def next_batch(self, attempt: int, step: int, rank: int) -> RankBatch | None:
        """The rank's part of the batch of `step`; None after the last step, or when the run cannot go on (the ranks
        then keep what was learned; `finish` tells why)."""
        self._fence(attempt)
        if step >= self.cfg.run.steps or self._over(step):
            return None
        try:
            await self._weights_for(step)
            if self._over(step):
                return None
            self._admit(step)
            made = await asyncio.shield(self.tasks[step])
        except (UserError, EngineFailed, JudgeFailure, DeadlineExceeded) as error:
            self._stop(step, error)
            return None
        if self._over(step):
            return None
        self.handed_out = max(self.handed_out, step)
        return made.batches[rank]

    def _over(self, step: int) -> bool:
        """Whether the run ends before `step`; the same answer for every rank, whenever it asks."""
        return self.stopped is not None and step > self.handed_out

    def _stop(self, step: int, error: Exception) -> None:
        self.stopped = self.stopped or error
        logger.error("stopping at step %d: %s", step, error)

    async def _weights_for(self, step: int) -> None:
        oldest = step - self.cfg.loop.max_staleness

        async def wait() -> None:
            async with self.published:
                await self.published.wait_for(lambda: self.version >= oldest or step in self.steps)

        await self.waits.within(f"version {oldest} of the weights", self.cfg.loop.step_deadline_s, wait())

    def _admit(self, step: int) -> None:
        """Starts what may be under way now: the asked step, and as many ahead as max_staleness allows."""
        groups = self.cfg.rollout.prompts_per_step
        ahead = capacity(self.version, self.cfg.loop.max_staleness, groups, step * groups) // groups
        for number in range(step, min(step + max(ahead, 1), self.cfg.run.steps)):
            if number not in self.tasks:
                self.tasks[number] = asyncio.create_task(self._make(number))

    async def _make(self, step: int) -> Step:
        async with self.collecting:
            started = time.monotonic()
            collected = await self.collector.collect(step)
            learner = self.cfg.learner
            batches = rank_batches(
                collected.streams,
                batch_id=f"step-{step}",
                ranks=learner.ranks,
                max_tokens=learner.micro_batch_tokens,
                mini_batches=learner.mini_batches,
            )
            self.steps[step] = Step(collected, batches, started)
            return self.steps[step]

    # --- after a step ---

    async def step_done(self, attempt: int, step: int, rank: int, metrics: dict[str, float]) -> None:
        """Takes a rank's report; rank 0's moves ledger and curriculum, once, and is logged.
        Where engine and learner disagree the run stops."""
        self._fence(attempt)
        if rank != 0:
            return
        at = self.steps[step]
        try:
            self._check_parity(at.collected, metrics)
        except ParityError as error:
            self._stop(step, error)
        at.collected.metrics.update(learner_metrics(metrics))
        if not at.done:
            at.done = True
            self.collector.trained(at.collected)

    def _check_parity(self, collected: Collected, metrics: dict[str, float]) -> None:
        exact = self.cfg.engine.dtype == self.cfg.model.dtype == "float32"
        fresh = collected.metrics.get("staleness_max", 0) == 0
        parity, limit = metrics["parity_mean"], self.cfg.publish.parity_limit
        if exact and fresh and not parity <= limit:
            raise ParityError(
                f"step {collected.step}: engine and learner log-probs of the same traces differ by {parity:.2g} on "
                f"average, the limit is {limit:g}; the engines do not hold the learner's weights"
            )

    async def publish(self, attempt: int, step: int, version: int, folder: str, digest: str) -> None:
        """Gives the engines a snapshot; returns once all have echoed version and digest. An attempt's first snapshot
        may be older than what they hold (its step is not among the steps asked for, or is done)."""
        self._fence(attempt)
        started = time.monotonic()
        if self.gate:
            await self.gate.before_swap()
        receipts = await self.pool.swap(folder, version, digest)
        self.version, self.digest, self.next_step = version, digest, version
        async with self.published:
            self.published.notify_all()
        if step in self.steps:
            await self._hand_on(step, version, folder, digest)
            took = {"seconds_swap": max((r.seconds for r in receipts), default=0.0)}
            await self._log(step, took | {"seconds_publish": time.monotonic() - started})

    async def _hand_on(self, step: int, version: int, folder: str, digest: str) -> None:
        """Every k steps and at the end, to storage, registry and endpoint, in the background: one at a time."""
        last = version >= self.cfg.run.steps
        if self.publisher is None or not (last or version % self.cfg.publish.every == 0):
            return
        await self._published()
        kept = keep_copy(Path(folder), self.folder / "published" / f"v{version}")
        if self.gate is None:
            self.pending = self.publisher.publish.remote(str(kept), version, digest, step)
        else:
            measuring = self.gate.begin(kept, version, digest)
            self.pending = asyncio.create_task(self._gated(measuring, str(kept), version, digest, step))

    async def _gated(self, measuring: asyncio.Task[dict], folder: str, version: int, digest: str, step: int) -> None:
        """Publishes once the version is measured, and shows why one is not served."""
        event = await self.publisher.publish.remote(folder, version, digest, step, await measuring)
        if event.get("refused"):
            self.lines.append((self.next_step, f"version {version} is not served: {event['refused']}"))

    async def _published(self) -> None:
        if self.pending is not None:
            deadline = self.cfg.loop.step_deadline_s
            pending, self.pending = self.pending, None
            await self.waits.within("the publisher (storage, registry, endpoint)", deadline, pending)

    async def _log(self, step: int, took: dict[str, float]) -> None:
        at = self.steps[step]
        counts = self.collector.ledger.counts()
        numbers = {
            **at.collected.metrics,
            **took,
            "seconds_step": time.monotonic() - at.started,
            **{f"ledger_{state}": counts[state] for state in ("issued", "trained", "dropped")},
        }
        self.lines += [(step, note) for note in at.collected.notes]
        self.lines.append((step, step_line(step, self.cfg.run.steps, self.version, numbers)))
        await self.waits.within("the tracker", 60, self.tracker.log_step.remote(step, numbers))
        if step % self.cfg.publish.every == 0 or step == self.cfg.run.steps - 1:
            views = step_views(at.collected, self.collector.prompts.tokenizer)
            keep_step(self.folder, step, views)
            kept = self.tracker.log_text.remote(trace_page(views, step), f"traces/{step_name(step)}.html")
            await self.waits.within("the tracker", 60, kept)

    # --- checkpoints ---

    async def state(self, attempt: int, step: int) -> dict:
        """All that a resume needs beside the weights; JSON-ready."""
        return {
            "step": self.next_step,
            "ledger": self.collector.ledger.to_state(),
            "issuer": self.collector.issuer.to_state(),
            "rule": self.collector.rule.state(),
        }

    async def restore(self, attempt: int, state: dict | None) -> None:
        """Goes on from a checkpoint's state; None is a fresh start. A controller that has batches keeps its own
        state: it is ahead of the checkpoint and replays."""
        if state is None or self.steps or self.next_step:
            return
        ledger = Ledger.from_state(state["ledger"])
        self.collector.issuer.restore(state["issuer"], ledger.take_back_unfinished())
        self.collector.ledger = ledger
        self.collector.rule.load(state["rule"])
        self.next_step = int(state["step"])

    async def checkpointed(self, attempt: int, step: int, info: dict | None = None) -> None:
        """A checkpoint that holds `step` is committed: earlier batches will never be asked for again."""
        for old in [number for number in self.steps if number <= step]:
            del self.steps[old]
            del self.tasks[old]

    # --- for the driver ---

    async def begin(self) -> str:
        """Starts the engines on the model folder; returns requested and effective options of each, as text."""
        options = EngineOptions.from_config(self.cfg.engine)
        found = await self.pool.start(self.cfg.model.path, options)
        return "\n\n".join(f"engine {index}\n{effective}" for index, effective in enumerate(found))

    async def measure(self, name: str) -> str | None:
        """Answers held-out problems with the weights the engines hold and keeps that as `name` (before, after); a line
        for people, None where there is nothing to ask."""
        measured = await measure_held_out(self.collector, self.folder, name, self.version)
        return measured and measured.line()

    async def progress(self, after: int) -> dict:
        """Lines of steps past `after`, steps done, and what is waited for now."""
        return {
            "lines": [(step, line) for step, line in self.lines if step > after],
            "done": self.next_step,
            "waits": self.waits.current(),
        }

    async def finish(self) -> dict:
        """Waits for the last publication; returns the ledger's counts, and why the run ended early, if it did."""
        await self._published()
        return {
            "ledger": self.collector.ledger.counts(),
            "dropped": self.collector.ledger.dropped_by_reason(),
            "issued_digest": self.collector.ledger.digest(),
            "steps": self.next_step,
            "version": self.version,
            "digest": self.digest,
            "stopped": f"step {self.next_step}: {self.stopped}" if self.stopped else None,
            "user_error": isinstance(self.stopped, UserError),
        }
