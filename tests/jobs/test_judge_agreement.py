"""The run's judge against the exact one, on the same traces."""

import json

import pytest

from jobs._judge_agreement import agreement_line, judge_agreement
from pipeline.config.schema import Judge
from pipeline.evaluation import dissect
from pipeline.judge.base import JUDGES
from pipeline.problems import Problem
from pipeline.traces import Marks, Stop, Trace
from tests.loop.builders import TOKENIZER

PROBLEMS = {"p": Problem("p", "What is 3 + 4?", "7", "tiny/chain_sum")}
FIRST, AGAIN = "3 + 4 = 8\nSo the answer is 8.\n", "Wait, let me check that again.\n3 + 4 = 7\nSo the answer is 7.\n"


def right(text):
    from dataclasses import replace

    ids = tuple(TOKENIZER.encode(text + "</think>\nThe answer is \\boxed{7}.", add_special_tokens=False))
    trace = Trace("p", 0, (1,), ids, (0.0,) * len(ids), (), Stop.EOS, text)
    return replace(dissect(trace, Marks.from_tokenizer(TOKENIZER)), correct=True)


class SaysYes:
    def probabilities(self, items):
        return [0.9] * len(items)


@pytest.fixture
def says_yes(monkeypatch):
    monkeypatch.setitem(JUDGES, "learned", lambda config: SaysYes())
    return Judge(name="learned")


def test_segments_and_prefixes_are_compared(says_yes):
    traces = [right(FIRST + AGAIN), right(AGAIN), right(FIRST + AGAIN)]
    found = judge_agreement(says_yes, traces, PROBLEMS, TOKENIZER)
    assert (found["judge"], found["traces"], found["same_prefix"]) == ("learned", 3, 1)
    segments = found["segments"]  # the same text is one segment
    assert (segments["n"], segments["agreed"], segments["false_yes"], segments["missed_yes"]) == (2, 1, 1, 0)
    assert json.loads(json.dumps(found)) == found
    assert agreement_line(found) == (
        "judge: learned; same prefix as the exact judge in 1 of 3 right traces; 1 of 2 different segments judged alike "
        "(1 false yes, 0 missed)"
    )


def test_the_exact_judge_is_not_compared_with_itself(says_yes):
    assert judge_agreement(Judge(), [right(AGAIN)], PROBLEMS, TOKENIZER) is None
    assert agreement_line(None) is None
    assert agreement_line(judge_agreement(says_yes, [], PROBLEMS, TOKENIZER)) is None
