"""Samples of one problem that begin differently: cut into requests, put together again, scored and trained on."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.config import UserError
from pipeline.engine import GenerateRequest
from pipeline.loop.collect import Prompts, starts_of
from pipeline.loop.steering import Tag, make_issue, merge, requests_of
from pipeline.problems import Problem, sample_seed
from pipeline.rewards import Steering, build, steering
from pipeline.traces import Group, Marks, Stop, Trace, VersionSpan
from tests.loop.builders import TOKENIZER, Fakes

MARKS = Marks.from_tokenizer(TOKENIZER)
TAG = Tag((6, 7), "</t>")
FREE, SKIP = Steering(share=0.5), Steering(no_think=True, share=0.5)


def plain(issue="0/p", n=4, seed=100):
    return GenerateRequest(issue, "p", (1, 2), n, seed, 0.9, 0.8, 50)


def answer(request, spans=None):
    """A group as an engine gives it: token ids tell request and sample."""
    traces = [
        Trace(
            "p",
            i,
            request.prompt_ids,
            (10 * request.n + i, 1),
            (-0.5, -0.25),
            spans or (VersionSpan(3, 0, 2),),
            Stop.EOS,
            f"text{i}",
        )
        for i in range(request.n)
    ]
    return Group(request.issue_id, "p", tuple(traces))


def test_an_unsteered_group_is_one_request_as_it_was():
    issue = make_issue(plain(), [Steering()] * 4, {"": (1, 2)}, TAG)
    assert requests_of([issue]) == [plain()]
    group = answer(plain())
    assert merge(issue, {"0/p": group}) == group


def test_one_request_for_each_way_to_begin():
    issue = make_issue(plain(n=5), [FREE, SKIP, FREE, SKIP, SKIP], {"": (1, 2)}, TAG)
    first, second = requests_of([issue])
    assert (first.issue_id, first.prompt_ids, first.n, first.seed, first.max_new_tokens) == ("0/p", (1, 2), 2, 100, 50)
    assert (second.prompt_ids, second.n, second.seed, second.max_new_tokens) == ((1, 2, 6, 7), 3, 102, 48)
    assert second.issue_id != first.issue_id and second.problem_id == "p"
    assert (second.temperature, second.top_p) == (0.9, 0.8)


def test_samples_come_back_in_their_places_with_the_forced_tokens():
    issue = make_issue(plain(n=3), [SKIP, FREE, SKIP], {"": (1, 2)}, TAG)
    spans = (VersionSpan(3, 0, 1), VersionSpan(4, 1, 2))
    group = merge(issue, {r.issue_id: answer(r, spans) for r in requests_of([issue])})
    assert (group.issue_id, group.problem_id) == ("0/p", "p")
    assert [trace.sample for trace in group.traces] == [0, 1, 2]
    assert [trace.token_ids for trace in group.traces] == [(6, 7, 20, 1), (10, 1), (6, 7, 21, 1)]
    assert all(trace.prompt_ids == (1, 2) for trace in group.traces)
    assert group.traces[0].logprobs == (0, 0, -0.5, -0.25) and group.traces[1].logprobs == (-0.5, -0.25)
    assert group.traces[0].versions == (VersionSpan(3, 0, 3), VersionSpan(4, 3, 4))
    assert group.traces[1].versions == spans
    assert [trace.text for trace in group.traces] == ["</t>text0", "text0", "</t>text1"]


def test_notes_make_prompts_of_their_own():
    issue = make_issue(
        plain(n=3), [Steering(note="a"), Steering(note="b"), Steering(note="a")], {"a": (1, 2, 3), "b": (1, 2, 4)}, TAG
    )
    assert [(r.prompt_ids, r.n, r.seed) for r in requests_of([issue])] == [((1, 2, 3), 2, 100), ((1, 2, 4), 1, 102)]


def test_long_samples_are_spread_over_the_engines():
    issues = [make_issue(plain(f"0/{i}"), [FREE, FREE, SKIP, SKIP], {"": (1, 2)}, TAG) for i in range(2)]
    dealt = [request.prompt_ids for request in requests_of(issues)[0::2]]
    assert dealt == [(1, 2), (1, 2, 6, 7)]  # of two engines the first gets one request of either kind


def test_too_few_answers_are_noticed():
    issue = make_issue(plain(), [FREE, FREE, SKIP, SKIP], {"": (1, 2)}, TAG)
    answers = {r.issue_id: answer(replace(r, n=1)) for r in requests_of([issue])}
    with pytest.raises(ValueError):
        merge(issue, answers)


def test_the_tag_of_a_tokenizer():
    assert Tag.of(MARKS) == Tag((MARKS.think_end_id,), "</think>")
    spelt = Marks(think_end="12", by_text=True, tokenizer=TOKENIZER)
    assert Tag.of(spelt) == Tag(tuple(TOKENIZER.encode("12", add_special_tokens=False)), "12")


def steered(folder, *overrides, verdicts=None):
    """A controller whose engines skip the thinking where the prompt ends with the tag."""
    fakes = Fakes(folder, *overrides, verdicts=verdicts)
    for engine in fakes.engines:
        engine._trace = _skipping(engine._trace)
    return fakes


def _skipping(make):
    def trace(request, problem, sample, ok, rng):
        made = make(request, problem, sample, ok, rng)
        if request.prompt_ids[-1] != MARKS.think_end_id:
            return made
        start = made.token_ids.index(MARKS.think_end_id) + 1
        ids = made.token_ids[start:]
        return replace(made, token_ids=ids, logprobs=made.logprobs[start:], versions=(VersionSpan(0, 0, len(ids)),))

    return trace


def collect(fakes):
    return asyncio.run(fakes.controller.collector.collect(0))


ADAPTTHINK = ["reward.name=adaptthink", "rollout.group_size=4"]


def test_adaptthink_from_request_to_stream(tmp_path):
    fakes = steered(tmp_path, *ADAPTTHINK)  # of each request's two samples the first is right
    found = collect(fakes)
    requests = [r for engine in fakes.engines for r in engine.asked]
    assert sorted(r.n for r in requests) == [2] * 8 and len({r.issue_id for r in requests}) == 8
    assert all(len(group.traces) == 4 for group in found.groups)
    for group, advantages in zip(found.groups, found.advantages, strict=True):
        assert [t.trace.token_ids[0] == MARKS.think_end_id for t in group.traces] == [False, False, True, True]
        assert [t.think_length == 0 for t in group.traces] == [False, False, True, True]
        assert advantages[:, 0] == pytest.approx([0.5, -0.5, 0.55, -0.45])
    streams = found.streams
    for row in range(len(streams)):
        drawn, logprobs = streams.drawn[row], streams.behaviour_logprobs[row]
        assert not drawn[0] and drawn[1:].all()
        # a forced tag counts as drawn with a half, a free first token (-0.5 by itself) with half its own probability
        assert logprobs[0] == pytest.approx(math.log(0.5) + (0 if row % 4 > 1 else -0.5))
        assert np.allclose(logprobs[1:], -0.5)
        assert streams.prompt_length[row] == len(found.groups[row // 4].traces[0].trace.prompt_ids)
    assert found.metrics["accuracy"] == 0.5


def test_l1_names_a_budget_and_the_reward_measures_it(tmp_path):
    options = "reward.options={shortest: 3, longest: 9, alpha: 0.01, note: 'add up to {tokens}'}"
    fakes = steered(tmp_path, "reward.name=l1_max", options)
    found = collect(fakes)
    targets = set()
    for group, rewards in zip(found.groups, found.rewards, strict=True):
        (start,) = set(group.starts)
        targets.add(start.target_length)
        prompt = TOKENIZER.decode(list(group.traces[0].trace.prompt_ids))
        assert prompt.endswith(f"{group.problem.prompt}\nadd up to {start.target_length}<|assistant|><think>\n")
        right = group.traces[0]
        expected = min(max(0.01 * (start.target_length - right.length) + 0.5, 0), 1)
        assert rewards[0, 0] == pytest.approx(expected) and rewards[1, 0] == 0
    assert len(targets) > 1 and targets <= set(range(3, 10))
    assert all(flags.all() for flags in found.streams.drawn)


@pytest.mark.parametrize("overrides", [ADAPTTHINK, ["reward.name=l1_exact"]])
def test_same_seed_same_batch(tmp_path, overrides):
    digests = [collect(steered(tmp_path, f"run.seed={seed}", *overrides)).streams.digest() for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_a_problem_begins_alike_in_every_epoch(tmp_path):
    fakes = Fakes(tmp_path, "reward.name=l1_exact")
    collector, problem = fakes.controller.collector, Problem("q", "What is 4 + 3?", "7", "tiny/chain_sum")
    one, two = (collector._issue(f"{epoch}/q", problem, epoch) for epoch in (0, 1))
    assert one.starts == two.starts == starts_of(collector.strategy, problem, fakes.cfg)
    assert one.variants[0].request.seed == sample_seed("q", 0, 0) != two.variants[0].request.seed


def test_a_note_must_fit_into_the_prompt_too():
    problem = Problem("p", "What is 4 + 3?", "7", "tiny/chain_sum")
    room = len(Prompts(TOKENIZER, "", 1).ids(problem))
    prompts = Prompts(TOKENIZER, "", room)
    assert prompts.fitting([problem]) == [problem]
    with pytest.raises(UserError, match="no training prompt fits"):
        prompts.fitting([problem], lambda _: [Steering(), Steering(note="again")])


def test_options_that_cannot_work_are_told_before_anything_starts(tmp_path):
    with pytest.raises(UserError, match="shortest .500. is above the longest budget .320."):
        Fakes(tmp_path, "reward.name=l1_max", "reward.options={shortest: 500}")
    with pytest.raises(UserError, match="budget is 4000 tokens, but responses end at rollout.max_new_tokens=320"):
        Fakes(tmp_path, "reward.name=thinkprune", "reward.options={budget: 4000}")


def test_steering_for_another_group_size_is_an_error():
    strategy = build({"name": "adaptthink"})
    object.__setattr__(strategy, "steer", lambda *_: [Steering()])
    with pytest.raises(ValueError, match="'adaptthink' steers 1 samples of a group of 2"):
        steering(strategy, "p", 2, 0, 8)
