"""Measures a model on held-out problems, through an endpoint or a rollout engine of its own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import RunConfig
from pipeline.evaluation import EndpointClient, ScoredTrace, Summary, score_traces, summarise
from pipeline.evaluation.graders import grader_for
from pipeline.evaluation.suites import Kind
from pipeline.grading import configure
from pipeline.judge import JudgeActor
from pipeline.problems import Problem
from pipeline.traces import Marks, Trace

Done = Callable[[int], object]


@dataclass(frozen=True)
class Measured:
    """Scored replies, the requests that failed (by reason), and the versions that answered."""

    problems: dict[str, Problem]
    scored: list[ScoredTrace]
    requests: int
    failures: list[str]

    @property
    def summary(self) -> Summary:
        """Over all replies."""
        return summarise(self.scored)

    @property
    def versions(self) -> list[int]:
        """Policy versions seen in the replies."""
        return sorted({span.version for t in self.scored for span in t.trace.versions})

    def by_source(self) -> dict[str, Summary]:
        """A summary for each source of problems."""
        sources = sorted({problem.source for problem in self.problems.values()})
        return {
            source: summarise([t for t in self.scored if self.problems[t.trace.problem_id].source == source])
            for source in sources
        }


class Scorer:
    """Grades and judges in this process, with the functions training uses. Programs have no prefix to judge.

    Right traces without a prefix are a figure here (`detector_misses`), not a reason to stop as in training.
    """

    def __init__(self, cfg: RunConfig, tokenizer: Any, problems: Sequence[Problem], kind: Kind = Kind.MATH) -> None:
        configure(cfg.grading.workers, cfg.grading.deadline_s)
        self.tokenizer, self.threads = tokenizer, cfg.grading.workers
        self.marks = Marks.from_tokenizer(tokenizer, cfg.model.think_end)
        self.problems = {problem.id: problem for problem in problems}
        self.grade = grader_for(kind, cfg.evaluation)
        judge = cfg.judge.model_copy(update={"on_absurd": "warn"})
        self.judge = None if kind is Kind.CODE else JudgeActor(judge)

    async def score(self, traces: Sequence[Trace]) -> list[ScoredTrace]:
        """Scored traces, in the order given."""
        return await score_traces(
            traces, self.problems, self.tokenizer, self.marks, self.judge, self.grade, self.threads
        )


async def score(
    cfg: RunConfig, tokenizer: Any, problems: Sequence[Problem], traces: Sequence[Trace]
) -> list[ScoredTrace]:
    """Grades and judges answers to mathematics."""
    return await Scorer(cfg, tokenizer, problems).score(traces)


def through_endpoint(
    cfg: RunConfig, tokenizer: Any, url: str, model_id: str, problems: Sequence[Problem], on_done: Done, seed: int = 0
) -> Measured:
    """Asks the endpoint every problem `evaluation.samples` times."""

    async def run() -> Measured:
        longest = cfg.evaluation.max_new_tokens or cfg.rollout.max_new_tokens
        client = EndpointClient(url, model_id, cfg.evaluation, longest, cfg.problems.prompt_suffix)
        try:
            replies = await client.ask_all(problems, seed, on_done)
        finally:
            await client.close()
        scored = await score(cfg, tokenizer, problems, replies.traces)
        return Measured({p.id: p for p in problems}, scored, replies.requests, replies.failures)

    return asyncio.run(run())


def table(columns: Mapping[str, Summary | Mapping[str, Any]]) -> str:
    """Summaries (or their figures as plain data) side by side, as text."""
    rows = [
        ("replies", "n", "d"),
        ("accuracy", "accuracy", ".3f"),
        ("tokens a reply", "tokens_mean", ".1f"),
        ("NRP share of thinking", "nrp_share", ".3f"),
        ("tokens per correct answer", "tokens_per_correct", ".1f"),
        ("truncated", "truncated_rate", ".3f"),
        ("unknown verdicts", "unknown_rate", ".3f"),
    ]
    width = max(12, *(len(name) + 2 for name in columns))
    lines = [f"{'':28}" + "".join(f"{name:>{width}}" for name in columns)]
    for label, field, form in rows:
        values = [part.to_dict()[field] if isinstance(part, Summary) else part[field] for part in columns.values()]
        lines.append(f"{label:28}" + "".join(f"{'-' if v is None else format(v, form):>{width}}" for v in values))
    return "\n".join(lines)
