"""From sampled traces to labelled questions, split by problem."""

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.grading import Verdict, grade_response
from pipeline.judge.altered import Material
from pipeline.judge.base import JudgeItem
from pipeline.problems import Problem
from pipeline.traces import Marks, Thinking, Trace, answer_text, segment, segment_texts, split_thinking


@dataclass(frozen=True)
class Cut:
    """One finished trace of `problem`, graded, with its segments' texts; `tokens` of thinking (the policy's)."""

    problem: Problem
    right: bool
    texts: tuple[str, ...]
    tokens: int

    def items(self) -> list[JudgeItem]:
        """A question for each segment."""
        return [JudgeItem(self.problem.prompt, self.problem.gold, text) for text in self.texts]

    def material(self) -> Material:
        """For altering."""
        return Material(self.problem.prompt, self.problem.gold, self.texts)


def cut_traces(
    traces: Iterable[Trace], problems: Mapping[str, Problem], tokenizer: Any, marks: Marks
) -> tuple[list[Cut], int]:
    """Traces that ended their thinking and have a verdict, cut and graded; and how many were left out."""
    found, left_out = [], 0
    for trace in traces:
        thinking, problem = split_thinking(trace.token_ids, marks), problems[trace.problem_id]
        cut = _cut(trace, thinking, problem, tokenizer, marks) if thinking.ends_seen else None
        left_out += cut is None
        found += [] if cut is None else [cut]
    return found, left_out


def _cut(trace: Trace, thinking: Thinking, problem: Problem, tokenizer: Any, marks: Marks) -> Cut | None:
    verdict = grade_response(answer_text(trace.token_ids, thinking, tokenizer), problem.gold, thinking.ends_seen)
    texts = tuple(segment_texts(trace.token_ids, segment(trace.token_ids, marks), tokenizer))
    if verdict is Verdict.UNKNOWN or not texts:
        return None
    return Cut(problem, verdict is Verdict.RIGHT, texts, thinking.think_length)


def split_by_problem(cuts: Sequence[Cut], share: float) -> tuple[list[Cut], list[Cut]]:
    """(the others, about `share` of the problems): all traces of a problem are on one side, by its prompt's digest."""
    kept, apart = [], []
    for cut in cuts:
        (apart if _fraction(cut.problem.prompt) < share else kept).append(cut)
    return kept, apart


def _fraction(prompt: str) -> float:
    return int.from_bytes(hashlib.sha256(b"judge/" + prompt.encode()).digest()[:4], "big") / 2**32


def mismatched(cuts: Sequence[Cut], rng: random.Random, count: int) -> list[JudgeItem]:
    """`count` questions about a segment beside the problem and answer of another trace, where answers differ."""
    if len({cut.problem.gold for cut in cuts}) < 2:
        return []
    found: list[JudgeItem] = []
    while len(found) < count:
        one, other = rng.choice(cuts), rng.choice(cuts)
        if one.problem.gold != other.problem.gold:
            found.append(JudgeItem(other.problem.prompt, other.problem.gold, rng.choice(one.texts)))
    return found
