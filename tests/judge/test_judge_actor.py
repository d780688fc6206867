"""Waves, cache, deadlines and failures, with a scripted judge."""

import asyncio
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.schema import Judge
from pipeline.judge import JudgeActor, JudgeFailure, PrefixRequest, PrefixResult


class Scripted:
    """Says yes to texts that hold "yes"; fails as told by the text. Remembers what it was asked."""

    def __init__(self):
        self.calls = []

    def probabilities(self, items):
        self.calls.append([item.segment_text for item in items])
        if any("sleep" in item.segment_text for item in items):
            time.sleep(1.0)
        if any("raise" in item.segment_text for item in items):
            raise ValueError("broken")
        if any("short" in item.segment_text for item in items):
            return []
        special = {"nan": math.nan, "two": 2.0, "none": None, "half": 0.84, "edge": 0.85}
        return [special.get(item.segment_text, 1.0 if "yes" in item.segment_text else 0.0) for item in items]


def request(name, *texts):
    return PrefixRequest(name, "p", "g", [(3 * i, 3 * i + 3) for i in range(len(texts))], texts)


def run(requests, config=None, **kwargs):
    judge = Scripted()
    actor = JudgeActor(config or Judge(max_failure_rate=1.0), judge, **kwargs)

    async def both():
        return await actor.find_prefixes(requests), await actor.counters()

    results, counters = asyncio.run(both())
    return results, counters, judge.calls


def test_waves_stop_at_the_first_yes():
    results, counters, calls = run([request("a", "no1", "yes1", "no2"), request("b", "yes2"), request("c", "n", "o")])
    assert results == [
        PrefixResult("a", 6, 2, 1, 3),
        PrefixResult("b", 3, 1, 0, 1),
        PrefixResult("c", None, 2, None, 2),
    ]
    assert calls == [["no1", "yes2", "n"], ["yes1", "o"]]
    assert counters["waves"] == 2
    assert (counters["requests"], counters["found"], counters["not_found"]) == (3, 2, 1)


def test_identical_segments_are_asked_once():
    actor = JudgeActor(Judge(), Scripted())

    async def twice():
        first = await actor.find_prefixes([request("a", "no", "yes"), request("b", "no", "yes")])
        second = await actor.find_prefixes([request("c", "no", "yes")])
        return first + second, await actor.counters()

    results, counters = asyncio.run(twice())
    assert {result.prefix_length for result in results} == {6}
    assert (counters["judged"], counters["cache_hits"]) == (2, 4)


def test_nothing_to_judge():
    results, counters, calls = run([request("a")])
    assert results == [PrefixResult("a", None, 0, None, 0)]
    assert (counters["calls"], calls) == (0, [])


def test_batches():
    _, counters, calls = run([request(str(i), f"n{i}") for i in range(5)], batch=2)
    assert [len(call) for call in calls] == [2, 2, 1]
    assert counters["calls"] == 3


def test_the_threshold_is_reached_from_above():
    results, _, _ = run([request("a", "half"), request("b", "edge")], Judge(threshold=0.85))
    assert [result.yes_index for result in results] == [None, 0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("raise", "exception"), ("short", "invalid"), ("nan", "item"), ("two", "invalid"), ("none", "invalid")],
)
def test_failures_are_no_and_counted(text, reason):
    results, counters, _ = run([request("a", text, "yes")])
    assert results[0].yes_index == 1
    assert (counters["failures"], counters[f"failures_{reason}"]) == (1, 1)


def test_a_judge_that_hangs_is_left_behind():
    begin = time.monotonic()
    config = Judge(deadline_s=0.1, max_failure_rate=1.0)
    results, counters, _ = run([request("a", "sleep", "yes")], config)
    assert time.monotonic() - begin < 0.9
    assert results[0].yes_index == 1
    assert counters["failures_deadline"] == 1


def test_failures_are_not_remembered():
    _, counters, calls = run([request("a", "nan", "nan")])
    assert calls == [["nan"], ["nan"]]
    assert counters["cache_hits"] == 0


def test_too_many_failures_end_the_run():
    requests = [request(str(i), "nan" if i < 4 else f"n{i}") for i in range(60)]
    few = [PrefixRequest(r.trace_id, str(i), r.gold, r.segments, r.texts) for i, r in enumerate(requests)]
    with pytest.raises(JudgeFailure, match=r"failed on 4 of its last 60 segments.*0\.05.*could not be judged"):
        run(few, Judge(max_failure_rate=0.05, max_miss_rate=1.0))
    run(few[:49], Judge(max_failure_rate=0.05, max_miss_rate=1.0))  # too few to say
    run(few, Judge(max_failure_rate=0.07, max_miss_rate=1.0))


def test_spans_and_texts_must_match():
    with pytest.raises(ValueError, match="2 segments but 1 texts"):
        PrefixRequest("a", "p", "g", [(0, 1), (1, 2)], ["x"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=5))
def test_labels_after_the_first_yes_never_matter(rows):
    def find(cases):
        named = [[f"{'yes' if y else 'no'}{i}.{k}" for k, y in enumerate(row)] for i, row in enumerate(cases)]
        return [result.prefix_length for result in run([request(str(i), *texts) for i, texts in enumerate(named)])[0]]

    flipped = [[y if True not in row[:k] else not y for k, y in enumerate(row)] for row in rows]
    assert find(rows) == find(flipped)
    assert find(rows) == [3 * (row.index(True) + 1) if True in row else None for row in rows]


@pytest.mark.slow
def test_inside_ray(local_ray):
    judge = local_ray.remote(JudgeActor).options(name="judge", num_cpus=0.25).remote(Judge())
    ask = PrefixRequest("a", "What is 3 + 4?", "7", [(0, 4), (4, 9)], ["3 + 4 = 7", "So the answer is 7."])
    assert local_ray.get(judge.find_prefixes.remote([ask]), timeout=120) == [PrefixResult("a", 9, 2, 1, 2)]
    assert local_ray.get(judge.counters.remote(), timeout=30)["found"] == 1
