"""Absurd judges: control questions, misses, and what a run does about them. Outages in the middle."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.schema import Judge
from pipeline.judge import JudgeActor, JudgeFailure, JudgeItem, PrefixRequest, PrefixResult, Unjudged
from pipeline.judge.watch import SenseWatch, control_questions


def request(number, gold, *texts):
    spans = [(3 * i, 3 * i + 3) for i in range(len(texts))]
    return PrefixRequest(str(number), f"problem {number}", gold, spans, texts)


def result(found):
    return PrefixResult("t", 3 if found else None, 1, 0 if found else None, 1)


class Says:
    """Says one thing from the `after`-th call on, and before that what is right ("gold" stands in the segment)."""

    def __init__(self, thing, after=0):
        self.thing, self.after, self.calls = thing, after, 0

    def probabilities(self, items):
        self.calls += 1
        if self.calls <= self.after:
            return [float(f"<{item.gold}>" in item.segment_text) for item in items]
        if isinstance(self.thing, Exception):
            raise self.thing
        return [self.thing] * len(items)


def judged(judge, config, steps, traces=60):
    """`steps` calls of right traces of two segments, the second of which states the answer."""

    async def go():
        actor, warnings = JudgeActor(config, judge), []
        for step in range(steps):
            ids = [step * traces + i for i in range(traces)]
            await actor.find_prefixes([request(i, str(i), f"so far {i}", f"<{i}>") for i in ids])
            warnings += await actor.warnings()
        return await actor.counters(), warnings

    return asyncio.run(go())


def test_control_questions_put_a_segment_beside_another_answer():
    requests = [request(i, str(i // 2), f"text {i}") for i in range(18)]
    assert control_questions(requests) == [
        JudgeItem("problem 2", "1", "text 0"),  # the next request has the same answer, the one after it another
        JudgeItem("problem 10", "5", "text 8"),
        JudgeItem("problem 0", "0", "text 16"),  # past the end it begins again
    ]
    assert control_questions([request(i, " 7", "x") for i in range(9)] + [request(9, "7 ", "x")]) == []
    assert control_questions([request(0, "1"), request(1, "2", "x")]) == []  # no segment, no question
    assert control_questions([]) == []


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_a_control_never_has_its_own_answer(golds):
    requests = [request(i, gold, f"{i}{gold}") for i, gold in enumerate(golds)]
    found = control_questions(requests)
    assert all(item.gold != item.segment_text[-1] for item in found)
    assert len(found) == (math.ceil(len(golds) / 8) if len(set(golds)) > 1 else 0)


def test_limits_are_over_the_last_ones_and_need_enough_of_them():
    watch = SenseWatch(Judge(max_miss_rate=0.5, max_false_yes_rate=0.1))
    watch.add([result(False)] * 49, [True] * 15)
    assert watch.complaints() == {}  # too few to say
    watch.add([result(True)] * 49, [False] * 135)
    assert watch.complaints() == {}  # 49 of 98 missed, 15 of 150 false: at the limits
    watch.add([result(False)], [True])
    assert list(watch.complaints()) == ["max_miss_rate", "max_false_yes_rate"]
    assert "in 50 of the last 99 right traces" in watch.complaints()["max_miss_rate"]
    assert "to 16 of the last 151 control questions" in watch.complaints()["max_false_yes_rate"]
    watch.add([result(True)] * 500, [False] * 256)
    assert watch.complaints() == {}


def test_a_judge_that_is_right_is_not_complained_of():
    counters, warnings = judged(Says(None, after=99), Judge(), steps=5)
    assert warnings == [] and counters["absurd"] == 0
    assert (counters["several"], counters["first_yes"], counters["found"]) == (300, 0, 300)
    assert (counters["controls"], counters["false_yes"]) == (5 * 8, 0)


def test_one_that_says_yes_to_everything_ends_the_run():
    with pytest.raises(JudgeFailure, match=r"yes to 16 of the last 16 control questions.*max_false_yes_rate \(0\.1\)"):
        judged(Says(1.0), Judge(), steps=5)


def test_one_that_says_no_to_everything_ends_the_run():
    with pytest.raises(JudgeFailure, match=r"no right segment in 60 of the last 60 right traces.*max_miss_rate"):
        judged(Says(0.0), Judge(), steps=1)


@pytest.mark.parametrize(("thing", "option"), [(1.0, "max_false_yes_rate"), (0.0, "max_miss_rate")])
def test_or_is_warned_of_once_and_counted(thing, option):
    counters, warnings = judged(Says(thing), Judge(on_absurd="warn"), steps=4)
    assert len(warnings) == 1 and option in warnings[0]
    assert counters["absurd"] == (3 if thing else 4)  # sixteen controls are there in the second call
    assert counters["failures"] == 0


@pytest.mark.parametrize(
    ("thing", "why"), [(ConnectionError("server gone"), "server gone"), (math.nan, "could not be judged")]
)
def test_an_outage_in_the_middle_ends_the_run(thing, why):
    judge = Says(thing, after=8)  # four calls in two waves each
    with pytest.raises(JudgeFailure, match=rf"the judge failed on .* of its last .* segments.*{why}"):
        judged(judge, Judge(), steps=8)
    assert judge.calls == 9


def test_too_long_segments_are_no_failures_but_are_counted():
    counters, _ = judged(Says(Unjudged.OVERLONG, after=2), Judge(max_miss_rate=1.0), steps=3)
    assert (counters["overlong"], counters["failures"]) == (2 * (120 + 8), 0)
    with pytest.raises(JudgeFailure, match="max_miss_rate"):  # where they are the rule, the misses tell
        judged(Says(Unjudged.OVERLONG), Judge(), steps=1)
