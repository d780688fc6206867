"""Measures what a run publishes on the run's own engines, for the gate before the endpoint.

A measurement starts when the engines have just got the weights and runs beside the next step's rollouts, filling what
they leave idle; the next swap waits for it, up to a deadline. Whatever fails is told to the publisher, which then does
not serve the version; training goes on. A champion that is not measured (a failure, or one that another command chose
meanwhile) is measured before one of the next swaps: until then the publisher refuses every version.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from pipeline.config import UserError
from pipeline.evaluation import score_traces
from pipeline.evaluation.tally import Measurement, tally
from pipeline.loop.collect import Collector
from pipeline.loop.evaluate import prompts_of, request_of
from pipeline.loop.frozen import asked_as, asked_digest, frozen_problems
from pipeline.loop.pool import EngineFailed
from pipeline.loop.waiting import DeadlineExceeded
from pipeline.problems import Problem
from pipeline.traces import Trace
from pipeline.weights.reference import read_reference

logger = logging.getLogger(__name__)
FAILURES = (UserError, EngineFailed, DeadlineExceeded, RayError)
Plain = dict[str, object]
TRIES = 3  # at the champion's measurement, at swaps that follow each other; as many again after each publication


class RunGate:
    """One run's measurements for its publisher; lives on the controller's event loop."""

    def __init__(self, collector: Collector, publisher: Any) -> None:
        self.collector, self.publisher = collector, publisher
        self.cfg, self.failures = asked_as(collector.cfg), 0
        self._problems: list[Problem] = []
        self._asked = ""
        self._tries = TRIES  # left for the champion's measurement; 0 when it is known
        self._running: asyncio.Task[Plain] | None = None

    async def before_swap(self) -> None:
        """Waits for a running measurement, whose weights must stay until it is done. Before the run's first snapshot,
        and when the champion has changed: measures the present champion, unless its figures are known."""
        if self._running is not None:
            await asyncio.wait({self._running})
        if self._tries:
            try:
                await self._measure_champion()
                self._tries = 0
            except FAILURES as error:
                self._tries -= 1
                self._count(error, "the champion")

    def begin(self, folder: Path, version: int, digest: str) -> asyncio.Task[Plain]:
        """Starts to measure the weights that the engines hold. The result is the measurement as plain data, or
        `failed`: why there is none."""
        self._running = asyncio.create_task(self._tried(folder, version, digest))
        return self._running

    async def _measure_champion(self) -> None:
        champion = await self._unmeasured_champion()
        if champion is None:
            return
        folder, version, digest = champion["folder"], champion["version"], champion["digest"]
        await self.collector.pool.swap(folder, version, digest)
        measured = await self._within(Path(folder), version, digest)
        await self.collector.waits.within(
            "the publisher", 60, self.publisher.keep_measurement.remote(measured.to_plain())
        )

    async def _unmeasured_champion(self) -> Plain | None:
        await self._prepare()
        asking = self.publisher.unmeasured_champion.remote(self._asked)
        return await self.collector.waits.within("the publisher to name the champion", self.cfg.gate.deadline_s, asking)

    async def _tried(self, folder: Path, version: int, digest: str) -> Plain:
        try:
            measured = (await self._within(folder, version, digest)).to_plain()
        except FAILURES as error:
            measured = {"failed": self._count(error, f"version {version}")}
        await self._look_again()
        return measured

    async def _look_again(self) -> None:
        """Another command may have chosen another champion since: the next versions need its figures."""
        try:
            known = await self._unmeasured_champion() is None
        except FAILURES as error:
            known = False
            self._count(error, "the champion")
        self._tries = 0 if known else TRIES

    def _count(self, error: Exception, what: str) -> str:
        self.failures += 1
        logger.warning("the gate could not measure %s (failure %d): %s", what, self.failures, error)
        return str(error) or type(error).__name__

    async def _within(self, folder: Path, version: int, digest: str) -> Measurement:
        what = f"the gate's measurement of version {version}"
        return await self.collector.waits.within(
            what, self.cfg.gate.deadline_s, self._measured(folder, version, digest)
        )

    async def _prepare(self) -> None:
        if not self._problems:
            problems = await asyncio.to_thread(frozen_problems, self.cfg, self.collector.prompts.tokenizer)
            self._problems, self._asked = problems, asked_digest(self.cfg, problems)

    async def _measured(self, folder: Path, version: int, digest: str) -> Measurement:
        """The judge is not asked: the gate has no limit on the necessary share, and the step has need of it."""
        await self._prepare()
        collector, problems = self.collector, self._problems
        prompts = prompts_of(self.cfg, collector.prompts.tokenizer)
        requests = [replace(request_of(self.cfg, prompts, p), issue_id=f"gate/{p.id}") for p in problems]
        groups = await collector.pool.generate(requests)
        traces = [trace for group in groups for trace in group.traces]
        _check_version(traces, version)
        by_id = {problem.id: problem for problem in problems}
        scored = await score_traces(traces, by_id, prompts.tokenizer, collector.marks, None)
        return Measurement(version, digest, self._asked, tally(scored), await self._parity(folder))

    async def _parity(self, folder: Path) -> float | None:
        """Of the engine that is furthest from the snapshot's own log-probs; None where it brings none."""
        reference = read_reference(folder)
        if reference is None:
            return None
        found = await self.collector.pool.fingerprint(reference.token_ids)
        return max(reference.distance(logprobs) for logprobs in found)


def _check_version(traces: Sequence[Trace], version: int) -> None:
    seen = sorted({span.version for trace in traces for span in trace.versions})
    if seen != [version]:
        raise EngineFailed(f"the engines answered with versions {seen}, not with {version} alone")
