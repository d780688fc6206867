"""The rollout engine: starts, samples, scores and swaps weights, and never serves weights it cannot name."""

import asyncio
import itertools
import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

from pipeline.config.errors import UserError
from pipeline.engine.effective import EffectiveOptions, effective_options
from pipeline.engine.model_folder import ModelFolder
from pipeline.engine.options import EngineOptions, engine_env
from pipeline.engine.requests import (
    EngineBroken,
    EngineTimeout,
    GenerateRequest,
    SwapReceipt,
    SwapRefused,
    check_tokens,
)
from pipeline.engine.steploop import StepLoop
from pipeline.engine.swap import Applied, apply_snapshot
from pipeline.engine.translate import (
    choice_probabilities,
    choosing_params,
    prompt_logprobs,
    sampling_params,
    scoring_params,
    to_trace,
)
from pipeline.traces import Group
from pipeline.weights import SnapshotError, verify

SwapMode = Literal["keep", "wait"]
log = logging.getLogger(__name__)


class RolloutEngine:
    """One vLLM engine in this process, driven from its own thread. Safe to call from one event loop.

    `version` and `digest` name the weights in use; `counters` count what would otherwise pass unseen.
    """

    def __init__(self, name: str = "engine") -> None:
        self.name = name
        self.version = 0
        self.digest = ""
        self.counters: Counter[str] = Counter()
        self._ids = itertools.count()
        self._swapping = asyncio.Lock()
        self._swap_task: asyncio.Task[SwapReceipt] | None = None
        self._loop: StepLoop | None = None
        self._folder: ModelFolder | None = None
        self._options: EngineOptions | None = None

    async def start(
        self, model_dir: str | Path, options: EngineOptions, version: int = 0, digest: str = "", deadline_s: float = 300
    ) -> EffectiveOptions:
        """Load `model_dir` and report requested beside effective options.

        Where `digest` is given the folder must be a snapshot with it. Raises UserError for options that cannot work
        or have no effect, SnapshotError for the wrong weights, EngineTimeout after `deadline_s` seconds.
        """
        if self._loop is not None:
            raise EngineBroken(f"engine {self.name} was already started; make a new one")
        self._folder, self._options = ModelFolder(model_dir), options
        self._folder.check_length(options.max_model_len)
        self._folder.check_rounded(options.device, options.dtype)
        if digest:
            await asyncio.to_thread(verify, model_dir, digest)
        os.environ.update(engine_env(options))  # for variables read late; thread counts must be set before the process
        self._loop = StepLoop(lambda: _build(model_dir, options, version), self.name)
        try:
            engine = await self._within(self._loop.start(), deadline_s, f"start with {model_dir}")
            self.version, self.digest = version, digest
            effective = effective_options(options, engine.vllm_config)
            effective.check()
        except BaseException as error:
            await self.shutdown()
            if isinstance(error, EngineBroken) and isinstance(error.__cause__, ValueError):
                # vLLM reports settings it cannot use as ValueError: those are the user's to mend.
                raise UserError(f"the engine cannot run {model_dir} with these options: {error.__cause__}") from error
            raise
        return effective

    async def generate(self, requests: Sequence[GenerateRequest], deadline_s: float | None = None) -> list[Group]:
        """One group a request, in order; each sample depends only on its request, sample index and weights.

        Raises UserError for a request that does not fit, EngineTimeout after `deadline_s` seconds (all of the call's
        requests are then dropped, as they are on cancellation), EngineBroken if the engine died or is unfit.
        """
        loop, folder, options = self._parts()
        for request in requests:
            request.check(options.max_model_len, folder.vocab_size)
        jobs = [(r.prompt_ids, sampling_params(r, folder.stop_ids)) for r in requests]
        what = f"{len(requests)} requests ({', '.join(r.issue_id for r in requests[:3])}...)"
        outputs = await self._answers(loop, jobs, deadline_s, what)
        texts = iter(folder.texts([s.token_ids for output in outputs for s in output.outputs]))
        groups = [self._group(request, output, texts) for request, output in zip(requests, outputs, strict=True)]
        self.counters["requests"] += len(groups)
        self.counters["tokens"] += sum(len(trace.token_ids) for group in groups for trace in group.traces)
        return groups

    async def score(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], deadline_s: float | None = 120
    ) -> list[float]:
        """Log-probs [T] (natural log, temperature 1) of `token_ids` [T] after `prompt_ids` [P], present weights."""
        loop, folder, options = self._parts()
        whole = [*prompt_ids, *token_ids]
        check_tokens(prompt_ids, folder.vocab_size, "score")
        check_tokens(whole, folder.vocab_size, "score")
        if len(whole) >= options.max_model_len:
            raise UserError(f"score: {len(whole)} tokens do not fit below engine.max_model_len {options.max_model_len}")
        if not token_ids:
            return []
        (output,) = await self._answers(loop, [(whole, scoring_params())], deadline_s, f"scoring {len(whole)} tokens")
        return prompt_logprobs(output, whole, len(prompt_ids))

    async def choose(
        self, prompts: Sequence[Sequence[int]], choices: Sequence[int], deadline_s: float | None = 120
    ) -> list[list[float]]:
        """For each prompt (token ids) how likely each of `choices` is its next token, among them alone: [N, C]."""
        loop, folder, options = self._parts()
        for prompt in prompts:
            check_tokens(prompt, folder.vocab_size, "choose")
            if len(prompt) >= options.max_model_len:
                raise UserError(f"choose: {len(prompt)} tokens do not fit below max_model_len {options.max_model_len}")
        jobs = [(prompt, choosing_params(choices)) for prompt in prompts]
        outputs = await self._answers(loop, jobs, deadline_s, f"choosing after {len(prompts)} prompts")
        return [choice_probabilities(output, choices) for output in outputs]

    async def fingerprint(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs [T-1] of a fixed sequence's tokens after its first: equal weights give equal values."""
        return await self.score(token_ids[:1], token_ids[1:])

    async def swap(
        self, folder: str | Path, version: int, digest: str, mode: SwapMode = "keep", allow_older: bool = False
    ) -> SwapReceipt:
        """Replace the weights by the snapshot in `folder`; returns once the worker has echoed version and digest.

        `keep` swaps between two steps: running requests go on, their traces' spans record both versions and their
        KV cache is computed again. `wait` lets running requests finish first and holds back new ones.
        The version and digest already in use are a no-op. Raises SwapRefused (old weights keep serving) for a folder
        that does not verify, an older version unless `allow_older`, or requests that do not finish in time;
        EngineBroken, for good, if the update fails after it began.
        """
        if mode not in ("keep", "wait"):
            raise UserError(f"swap mode '{mode}' is unknown; use 'keep' or 'wait'")
        # Shielded: a caller that gives up must not leave the engine with new weights under the old version.
        self._swap_task = asyncio.ensure_future(self._swap(folder, version, digest, mode == "wait", allow_older))
        return await asyncio.shield(self._swap_task)

    async def _swap(self, folder: str | Path, version: int, digest: str, waits: bool, allow_older: bool) -> SwapReceipt:
        async with self._swapping:
            loop, base, options = self._parts()
            started = time.monotonic()
            if (version, digest) == (self.version, self.digest):
                return SwapReceipt(version, digest, 0.0, 0.0, 0, changed=False)
            self._check_order(version, allow_older)
            await self._check_folder(folder, version, digest, base)
            remaining = options.swap_deadline_s - (time.monotonic() - started)
            if remaining <= 0:
                raise self._refused(f"checking {folder} took over {options.swap_deadline_s:.0f} s")
            applied = loop.submit(lambda engine: apply_snapshot(engine, str(folder), version, digest), waits)
            loaded = await self._swapped(loop, applied, remaining, version, waits)
            self.version, self.digest = version, digest
            self.counters["swaps"] += 1
            return SwapReceipt(version, digest, time.monotonic() - started, loaded.pause_seconds, loaded.tensors)

    async def ping(self, deadline_s: float = 10) -> dict[str, object]:
        """Identity and state, answered by the engine's own thread; EngineTimeout if it does not answer."""
        loop, _, _ = self._parts()
        await self._within(loop.submit(lambda engine: None), deadline_s, "answer a ping")
        return {
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "unfinished": loop.unfinished,
            "steps": loop.steps,
            "counters": dict(self.counters),
        }

    async def shutdown(self) -> None:
        """End the engine and free what it holds. Harmless when repeated."""
        if self._loop is not None and not await asyncio.to_thread(self._loop.stop):
            log.error("engine %s: its thread did not end", self.name)

    def _parts(self) -> tuple[StepLoop, ModelFolder, EngineOptions]:
        if self._loop is None or self._folder is None or self._options is None:
            raise EngineBroken(f"engine {self.name} is not started")
        if self._loop.failure is not None:
            raise EngineBroken(f"engine {self.name} takes no traffic: {self._loop.failure}") from self._loop.failure
        return self._loop, self._folder, self._options

    def _group(self, request: GenerateRequest, output: Any, texts: Any) -> Group:
        traces = tuple(to_trace(request, sample, self.version, next(texts)) for sample in output.outputs)
        return Group(request.issue_id, request.problem_id, traces)

    async def _answers(
        self, loop: StepLoop, jobs: Sequence[tuple[Sequence[int], Any]], deadline_s: float | None, what: str
    ) -> list[Any]:
        """Final outputs of `jobs`, in order; whatever ends the wait early drops all of them from the engine."""
        futures: dict[str, Future] = {}
        try:
            for prompt_ids, params in jobs:
                request_id = f"{self.name}-{next(self._ids)}"
                futures[request_id] = loop.request(request_id, {"prompt_token_ids": list(prompt_ids)}, params)
            waiting = asyncio.gather(*(asyncio.wrap_future(future) for future in futures.values()))
            return await asyncio.wait_for(waiting, deadline_s)
        except BaseException as error:
            open_ids = [request_id for request_id, future in futures.items() if not future.done()]
            self.counters["aborted"] += len(open_ids)
            loop.abort(open_ids)
            if isinstance(error, TimeoutError):
                raise self._timeout(f"{what}, {len(open_ids)} of them unfinished", deadline_s) from error
            raise

    def _check_order(self, version: int, allow_older: bool) -> None:
        if allow_older or not self.digest:  # without a digest it has never been told what it serves
            return
        if version == self.version:
            raise self._refused(f"it already serves other weights as version {version}")
        if version < self.version:
            raise self._refused(f"going back to version {version} needs allow_older")

    async def _check_folder(self, folder: str | Path, version: int, digest: str, base: ModelFolder) -> None:
        """Read every tensor once, off the engine's thread, while it goes on generating."""
        try:
            manifest = await asyncio.to_thread(verify, folder, digest, base.path)
        except SnapshotError as error:
            raise self._refused(str(error)) from error
        if manifest.version != version:
            raise self._refused(f"{folder} holds version {manifest.version}, expected {version}")

    async def _swapped(self, loop: StepLoop, applied: Future, seconds: float, version: int, waits: bool) -> Applied:
        """The update's result. An update that may have begun and did not succeed ends the engine."""
        what = f"the swap to version {version}"
        try:
            return await self._within(applied, seconds, what)
        except EngineTimeout as error:
            if waits and await asyncio.wrap_future(loop.withdraw(applied)):
                raise self._refused(f"running requests did not finish within {seconds:.1f} s") from error
            loop.fail(error)
            raise
        except SwapRefused as error:
            raise self._refused(str(error)) from error
        except Exception as error:
            broken = EngineBroken(f"engine {self.name}: {what} failed midway: {type(error).__name__}: {error}")
            loop.fail(broken)
            raise broken from error

    def _refused(self, why: str) -> SwapRefused:
        self.counters["swaps_refused"] += 1
        return SwapRefused(f"engine {self.name} keeps version {self.version}: {why}")

    async def _within(self, future: Future, seconds: float, what: str) -> Any:
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
        except TimeoutError as error:
            raise self._timeout(what, seconds) from error

    def _timeout(self, what: str, seconds: float | None) -> EngineTimeout:
        return EngineTimeout(
            f"engine {self.name} (version {self.version}): {what}: not done after {seconds or 0:.1f} s"
        )


def _build(model_dir: str | Path, options: EngineOptions, version: int) -> Any:
    """Build vLLM's engine in the calling thread and label its first weights."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    engine = LLMEngine.from_engine_args(EngineArgs(**options.engine_args(model_dir)))
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    engine.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {}})
    engine.set_weight_version(str(version))
    return engine
