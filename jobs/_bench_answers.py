"""Answers to problems from a row's server, checked: accuracy, tokens a right answer, and what a right answer costs."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs._bench_rows import Row, waves
from jobs._evaluation import Evaluation
from pipeline.evaluation import EndpointClient, Replies, ScoredTrace, score_traces, summarise
from pipeline.evaluation.graders import grader_for
from pipeline.grading import configure
from pipeline.problems import Problem
from pipeline.traces import Marks

HOUR_S = 3600.0


@dataclass(frozen=True)
class Price:
    """`per_hour` of one `unit`, of which the server may use `units`."""

    per_hour: float
    unit: str
    units: int

    def of(self, seconds: float) -> float:
        return self.per_hour * self.units * seconds / HOUR_S


@dataclass(frozen=True)
class Answers:
    """Scored replies, the requests that failed (by reason), and the seconds from the first request to the last reply,
    without the grading."""

    scored: list[ScoredTrace]
    failures: list[str]
    seconds: float


def at_once(row: Row, size: int) -> int:
    """Requests under way: one, a group, or enough that the engine never waits for a client."""
    return {"one": 1, "groups": size, "open": 2 * size}[row.clients]


def ask(
    row: Row, evaluation: Evaluation, url: str, size: int, extra: Mapping[str, Any], done: Callable[[int], object]
) -> tuple[list[Replies], float]:
    """Every problem, as the row's clients send; the replies and the seconds it took."""
    cfg = evaluation.cfg
    options = cfg.evaluation.model_copy(update={"concurrency": at_once(row, size)})
    longest, suffix = cfg.rollout.max_new_tokens, cfg.problems.prompt_suffix

    async def run() -> tuple[list[Replies], float]:
        client = EndpointClient(url, cfg.serve.model_id, options, longest, suffix, extra)
        began = time.monotonic()
        try:
            parts = waves(row, evaluation.problems, max(1, size // options.samples))
            found = [await client.ask_all(part, cfg.run.seed, done) for part in parts]
            return found, time.monotonic() - began
        finally:
            await client.close()

    return asyncio.run(run())


def checked(evaluation: Evaluation, tokenizer: Any, replies: Sequence[Replies], seconds: float) -> Answers:
    """The replies, graded as an evaluation grades them; nobody judges prefixes."""
    cfg = evaluation.cfg
    configure(cfg.grading.workers, cfg.grading.deadline_s)
    problems: dict[str, Problem] = {problem.id: problem for problem in evaluation.problems}
    marks = Marks.from_tokenizer(tokenizer, cfg.model.think_end)
    grade = grader_for(evaluation.kind, cfg.evaluation)
    traces = [trace for part in replies for trace in part.traces]
    scored = asyncio.run(score_traces(traces, problems, tokenizer, marks, None, grade, cfg.grading.workers))
    return Answers(scored, [text for part in replies for text in part.failures], seconds)


def answer_figures(answers: Answers, price: Price) -> dict[str, Any]:
    """Accuracy, tokens a right answer and its cost, with intervals over problems; the price of every second the server
    took, right or wrong, falls on the right answers. Nones where none is right."""
    found = summarise(answers.scored)
    right = sum(bool(one.correct) for one in answers.scored)
    return {
        "accuracy": found.accuracy,
        "accuracy_interval": found.accuracy_interval,
        "tokens_per_reply": found.tokens_mean,
        "think_tokens_most": max((one.think_length for one in answers.scored), default=None),
        "tokens_per_correct": found.tokens_per_correct,
        "tokens_per_correct_interval": found.tokens_per_correct_interval,
        "seconds_per_correct": answers.seconds / right if right else None,
        "cost_per_correct": price.of(answers.seconds) / right if right else None,
        "truncated_rate": found.truncated_rate,
        "answers": len(answers.scored),
        "answers_right": right,
        "answer_seconds": answers.seconds,
    }
