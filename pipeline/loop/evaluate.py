"""Samples held-out problems on one rollout engine of its own."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any

import ray

from pipeline.config import RunConfig, UserError
from pipeline.engine import GenerateRequest, engine_env
from pipeline.engine.actor import RolloutActor
from pipeline.engine.options import EngineOptions
from pipeline.loop.collect import Prompts
from pipeline.loop.remote import RunFailed, get
from pipeline.problems import Problem, sample_seed
from pipeline.traces import Trace

CHUNKS = 10  # of a split, so that its progress shows


class EvaluationEngine:
    """One engine, started on `folder`; a context manager. Weights are swapped rather than the engine started anew.

    Ray must be connected. `cpus` None: rollout.cpus_per_engine; 0 for one that rests while a training runs. With a
    `digest` the folder must be a snapshot that has it. UserError for what a user can mend, RunFailed past a deadline.
    """

    def __init__(
        self, cfg: RunConfig, folder: str, cpus: float | None = None, version: int = 0, digest: str = ""
    ) -> None:
        self.cfg = cfg
        options = EngineOptions.from_config(cfg.engine)
        self._actor = (
            ray.remote(RolloutActor)
            .options(
                num_cpus=cfg.rollout.cpus_per_engine if cpus is None else cpus,
                num_gpus=cfg.rollout.gpus_per_engine,
                max_concurrency=CHUNKS + 2,
                runtime_env={"env_vars": engine_env(options)},
            )
            .remote("evaluation")
        )
        try:
            start = self._actor.start.remote(folder, options, version, digest, cfg.loop.start_deadline_s)
            get(start, cfg.loop.start_deadline_s, f"the evaluation engine to start with {folder}")
        except BaseException:
            self.end()
            raise

    def swap(self, folder: str, version: int, digest: str) -> None:
        """Answers with the weights of a snapshot from now on; raises unless the engine echoes their identity."""
        order = self._actor.swap.remote(folder, version, digest, "keep", True)
        receipt = get(order, self.cfg.engine.swap_deadline_s + 30, f"the evaluation engine to swap to {folder}")
        if (receipt.version, receipt.digest) != (version, digest):
            raise RuntimeError(f"the evaluation engine answers with {receipt.digest[:12]}, not {digest[:12]}")

    def sample(
        self, cfg: RunConfig, tokenizer: Any, problems: Sequence[Problem], on_done: Callable[[int], object]
    ) -> list[Trace]:
        """`evaluation.samples` traces a problem under the present weights, seeded by `run.seed` of `cfg`."""
        prompts = prompts_of(cfg, tokenizer)
        requests = [request_of(cfg, prompts, problem) for problem in problems]
        size = math.ceil(len(requests) / CHUNKS)
        chunks = [requests[start : start + size] for start in range(0, len(requests), size)]
        asked = [self._actor.generate.remote(chunk) for chunk in chunks]  # all at once: the engine batches them
        traces: list[Trace] = []
        for chunk, reply in zip(chunks, asked, strict=True):
            groups = get(reply, cfg.rollout.deadline_s, "the evaluation engine's replies")
            traces += [trace for group in groups for trace in group.traces]
            on_done(len(chunk) * cfg.evaluation.samples)
        return traces

    def replies(self, cfg: RunConfig, tokenizer: Any, wanted: Sequence[tuple[Problem, int]]) -> Iterator[list[Trace]]:
        """The wanted (problem, sample) pairs, a list as it is done. Which others are asked for changes none of them.

        UserError for prompts that leave no room; RunFailed when nothing is done for rollout.deadline_s.
        """
        prompts = prompts_of(cfg, tokenizer)
        _check_room(cfg, prompts, list({problem.id: problem for problem, _ in wanted}.values()))
        requests = iter([_single(cfg, prompts, *pair) for pair in wanted])
        samples = {_issue(problem, sample): sample for problem, sample in wanted}
        size = math.ceil(cfg.engine.max_num_seqs / (CHUNKS // 2))  # so that half of the chunks keep the engine full
        asked: list[Any] = []
        while True:
            while len(asked) < CHUNKS and (chunk := list(islice(requests, size))):
                asked.append(self._actor.generate.remote(chunk))
            if not asked:
                return
            done, asked = ray.wait(asked, timeout=cfg.rollout.deadline_s)
            if not done:
                raise RunFailed(f"waited {cfg.rollout.deadline_s:g} s for the evaluation engine's next reply")
            groups = get(done[0], cfg.rollout.deadline_s, "the evaluation engine's replies")
            yield [replace(trace, sample=samples[group.issue_id]) for group in groups for trace in group.traces]

    def fingerprint(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs [T-1] of a fixed sequence's tokens after its first, under the present weights."""
        asked = self._actor.fingerprint.remote(list(token_ids))
        return get(asked, self.cfg.rollout.deadline_s, "the evaluation engine's log-probs")

    def end(self) -> None:
        """Ends the engine's process; harmless when repeated."""
        ray.kill(self._actor)

    def __enter__(self) -> "EvaluationEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def longest_reply(cfg: RunConfig) -> int:
    """Most new tokens of a reply when measuring."""
    return cfg.evaluation.max_new_tokens or cfg.rollout.max_new_tokens


def prompts_of(cfg: RunConfig, tokenizer: Any) -> Prompts:
    """Problems as token ids, with what room a longest reply leaves."""
    return Prompts(tokenizer, cfg.problems.prompt_suffix, cfg.engine.max_model_len - longest_reply(cfg))


def request_of(cfg: RunConfig, prompts: Prompts, problem: Problem) -> GenerateRequest:
    """`evaluation.samples` replies to a problem, seeded by it and `run.seed`."""
    return GenerateRequest(
        issue_id=problem.id,
        problem_id=problem.id,
        prompt_ids=tuple(prompts.ids(problem)),
        n=cfg.evaluation.samples,
        seed=sample_seed(problem.id, 0, cfg.run.seed),
        temperature=cfg.evaluation.temperature,
        top_p=cfg.evaluation.top_p,
        max_new_tokens=longest_reply(cfg),
    )


def _single(cfg: RunConfig, prompts: Prompts, problem: Problem, sample: int) -> GenerateRequest:
    """One sample alone, with the seed that it has among all of its problem."""
    whole = request_of(cfg, prompts, problem)
    return replace(whole, issue_id=_issue(problem, sample), n=1, seed=whole.seed + sample)


def _issue(problem: Problem, sample: int) -> str:
    return f"{problem.id}/{sample}"


def _check_room(cfg: RunConfig, prompts: Prompts, problems: Sequence[Problem]) -> None:
    longest = max((len(prompts.ids(problem)) for problem in problems), default=0)
    if longest > prompts.max_tokens:
        raise UserError(
            f"the longest prompt has {longest} tokens and a response up to {longest_reply(cfg)}; set "
            f"engine.max_model_len ({cfg.engine.max_model_len}) to at least {longest + longest_reply(cfg)} if "
            "the model allows, or lower evaluation.max_new_tokens"
        )
