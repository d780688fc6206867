"""Traces -> verdicts and prefixes, with the tiny tokenizer and a judge that is told what to say."""

import asyncio

import pytest

from pipeline.evaluation import dissect, grade_traces, score_traces
from pipeline.evaluation.scoring import with_prefixes
from pipeline.judge import PrefixResult
from pipeline.problems import Problem
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Marks, Stop, Trace, VersionSpan

TOKENIZER = build_tokenizer()
MARKS = Marks.from_tokenizer(TOKENIZER)
ATTEMPT = "4 + 3 = 7\nSo the answer is 7.\n"
AGAIN = "Wait, let me check that again.\n" + ATTEMPT
RIGHT = ATTEMPT + AGAIN + "</think>\nThe answer is \\boxed{7}.<eos>"
PROBLEMS = {name: Problem(name, "What is 4 + 3?", "7", "tiny/chain_sum") for name in "pq"}


def trace(text, problem="p"):
    ids = tuple(TOKENIZER.encode(text, add_special_tokens=False))
    return Trace(problem, 0, (1,), ids, (0.0,) * len(ids), (VersionSpan(0, 0, len(ids)),), Stop.EOS, text)


def tokens(text):
    return len(TOKENIZER.encode(text, add_special_tokens=False))


class Judge:
    """Says yes to segment `yes` of every trace (None: to none) and remembers what it was asked."""

    def __init__(self, yes):
        self.yes, self.asked = yes, []

    async def find_prefixes(self, requests):
        self.asked += requests
        return [self._result(request) for request in reversed(requests)]

    def _result(self, request):
        end = None if self.yes is None else request.segments[self.yes][1]
        return PrefixResult(request.trace_id, end, 1, self.yes, len(request.segments))


def score(traces, judge):
    return asyncio.run(score_traces(traces, PROBLEMS, TOKENIZER, MARKS, judge))


def test_dissection():
    found = dissect(trace(RIGHT), MARKS)
    assert found.think_length == tokens(ATTEMPT + AGAIN) and found.answer_start == found.think_length + 1
    assert found.segments == ((0, tokens(ATTEMPT)), (tokens(ATTEMPT), found.think_length))
    assert (found.ends_seen, found.length) == (1, tokens(RIGHT))
    assert found.correct is None and found.prefix_length is None and found.segment_ratio is None


@pytest.mark.parametrize(
    "text,correct",
    [
        (RIGHT, True),
        (ATTEMPT + "</think>\nThe answer is \\boxed{8}.<eos>", False),
        (ATTEMPT + "</think>\n<eos>", False),
        (ATTEMPT + "The answer is \\boxed{7}.<eos>", False),
        (RIGHT.replace("<eos>", "") + "</think>\\boxed{7}<eos>", False),
        (ATTEMPT + "\\boxed{7}</think>\nThe answer is 8.<eos>", False),
    ],
    ids=["right", "wrong", "no answer", "never ends thinking", "ends it twice", "boxed while thinking only"],
)
def test_verdicts(text, correct):
    assert grade_traces([trace(text)], PROBLEMS, TOKENIZER, MARKS)[0].correct is correct


def test_a_trace_cut_off_while_thinking_has_no_segments():
    found = dissect(trace(ATTEMPT + AGAIN), MARKS)
    assert found.segments == () and found.think_length == found.answer_start == found.length and found.ends_seen == 0


def test_a_checker_that_fails_gives_no_verdict():
    problems = {"p": Problem("p", "What is 4 + 3?", " ", "tiny/chain_sum")}
    assert grade_traces([trace(RIGHT)], problems, TOKENIZER, MARKS)[0].correct is None


def test_only_right_traces_are_judged_and_order_is_kept():
    wrong = ATTEMPT + "</think>\nThe answer is \\boxed{8}.<eos>"
    judge = Judge(yes=0)
    found = score([trace(wrong), trace(RIGHT, "q"), trace("</think>\\boxed{7}<eos>"), trace(RIGHT)], judge)
    assert [t.correct for t in found] == [False, True, True, True]
    assert [t.prefix_length for t in found] == [None, tokens(ATTEMPT), None, tokens(ATTEMPT)]
    assert [t.segment_ratio for t in found] == [None, 0.5, None, 0.5]
    assert [t.trace.problem_id for t in found] == ["p", "q", "p", "p"]
    assert sorted(request.trace_id for request in judge.asked) == ["1", "3"]


def test_what_the_judge_is_asked():
    judge = Judge(yes=1)
    found = score([trace(RIGHT)], judge)
    request = judge.asked[0]
    assert (request.problem, request.gold) == ("What is 4 + 3?", "7")
    assert list(request.texts) == [ATTEMPT.strip(), AGAIN.strip()]
    assert found[0].prefix_length == found[0].think_length and found[0].segment_ratio == 1.0


def test_a_judge_that_finds_nothing():
    found = score([trace(RIGHT)], Judge(yes=None))
    assert found[0].correct and found[0].prefix_length is None and found[0].segment_ratio is None


def test_nothing_to_score():
    assert score([], Judge(yes=0)) == []
    assert asyncio.run(with_prefixes([], {}, TOKENIZER, Judge(yes=0))) == []


def test_unknown_problem_is_not_passed_over():
    with pytest.raises(KeyError, match="r"):
        grade_traces([trace(RIGHT, "r")], PROBLEMS, TOKENIZER, MARKS)
