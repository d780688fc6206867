"""Traces -> verdicts and necessary prefixes. Training and evaluation score with the same function."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pipeline.evaluation.graders import Grader, grade_math
from pipeline.grading import Verdict
from pipeline.judge import PrefixRequest, PrefixResult
from pipeline.problems import Problem
from pipeline.traces import Marks, Thinking, Trace, answer_text, closes_thinking, segment, segment_texts, split_thinking

CORRECT = {Verdict.RIGHT: True, Verdict.WRONG: False, Verdict.UNKNOWN: None}


class PrefixFinder(Protocol):
    """The judge, as the scorer sees it (the actor, or the plain object in one process)."""

    async def find_prefixes(self, requests: Sequence[PrefixRequest]) -> list[PrefixResult]:
        """One result a request, in any order."""
        ...


@dataclass(frozen=True)
class ScoredTrace:
    """A trace with all that is known of it. `correct` is None where the checker failed (UNKNOWN).

    `segments` are [start, end) token spans of the thinking; `prefix_length` is the end of the first one judged
    right (None: none was, or the trace was not right and so never judged).
    """

    trace: Trace
    segments: tuple[tuple[int, int], ...]
    think_length: int
    answer_start: int
    ends_seen: int
    correct: bool | None = None
    prefix_length: int | None = None

    @property
    def length(self) -> int:
        """Response tokens, answer and EOS included."""
        return len(self.trace.token_ids)

    @property
    def segment_ratio(self) -> float | None:
        """Necessary segments over all segments; None without a detected prefix."""
        if self.prefix_length is None or not self.segments:
            return None
        return sum(end <= self.prefix_length for _, end in self.segments) / len(self.segments)


def dissect(trace: Trace, marks: Marks) -> ScoredTrace:
    """Splits one trace into thinking segments and answer; neither graded nor judged yet.

    Where the prompt itself has closed the thinking (switched off in the chat template) the response is all answer, and
    the prompt's tag is the one that was seen.
    """
    thinking = split_thinking(trace.token_ids, marks)
    if closes_thinking(trace.prompt_ids, marks):
        return ScoredTrace(trace, (), think_length=0, answer_start=0, ends_seen=1 + thinking.ends_seen)
    segments = tuple(segment(trace.token_ids, marks)) if thinking.ends_seen else ()
    return ScoredTrace(trace, segments, thinking.think_length, thinking.answer_start, thinking.ends_seen)


def _graded(scored: ScoredTrace, problem: Problem, tokenizer: Any, grade: Grader) -> ScoredTrace:
    thinking = Thinking(scored.think_length, scored.answer_start, scored.ends_seen)
    text = answer_text(scored.trace.token_ids, thinking, tokenizer)
    return replace(scored, correct=CORRECT[grade(text, problem, scored.ends_seen)])


def grade_traces(
    traces: Sequence[Trace],
    problems: Mapping[str, Problem],
    tokenizer: Any,
    marks: Marks,
    grade: Grader = grade_math,
    threads: int = 1,
) -> list[ScoredTrace]:
    """Dissects and grades; `problems` by id. Blocking: the checker may take up to its deadline for odd answers, and
    programs run for seconds; `threads` of them at a time."""

    def one(trace: Trace) -> ScoredTrace:
        return _graded(dissect(trace, marks), problems[trace.problem_id], tokenizer, grade)

    if threads == 1:
        return [one(trace) for trace in traces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, traces))


async def score_traces(
    traces: Sequence[Trace],
    problems: Mapping[str, Problem],
    tokenizer: Any,
    marks: Marks,
    judge: PrefixFinder | None,
    grade: Grader = grade_math,
    threads: int = 1,
) -> list[ScoredTrace]:
    """Grades all traces, then asks the judge (None: nobody) for the prefix of the right ones. Same order as given."""
    graded = await asyncio.to_thread(grade_traces, traces, problems, tokenizer, marks, grade, threads)
    return graded if judge is None else await with_prefixes(graded, problems, tokenizer, judge)


async def with_prefixes(
    graded: Sequence[ScoredTrace], problems: Mapping[str, Problem], tokenizer: Any, judge: PrefixFinder
) -> list[ScoredTrace]:
    """The graded traces with the judge's prefix on the right ones; the others are not judged."""
    requests = [
        PrefixRequest(
            trace_id=str(index),
            problem=problems[scored.trace.problem_id].prompt,
            gold=problems[scored.trace.problem_id].gold,
            segments=list(scored.segments),
            texts=segment_texts(scored.trace.token_ids, scored.segments, tokenizer),
        )
        for index, scored in enumerate(graded)
        if scored.correct and scored.segments
    ]
    found = {result.trace_id: result.prefix_length for result in await judge.find_prefixes(requests)}
    return [replace(scored, prefix_length=found.get(str(i))) for i, scored in enumerate(graded)]
