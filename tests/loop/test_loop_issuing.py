"""Each problem once an epoch, the same order for the same seed, also after a resume."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.loop.admission import capacity, staleness
from pipeline.loop.issuing import Issuer
from pipeline.problems import Problem


def problems(count):
    return [Problem(f"p{i}", f"What is {i}?", str(i), "test") for i in range(count)]


def names(drawn):
    return [(problem.id, epoch) for problem, epoch in drawn]


@given(st.integers(1, 12), st.integers(0, 5), st.lists(st.integers(0, 7), max_size=12))
def test_each_problem_once_an_epoch(size, seed, counts):
    issuer = Issuer(problems(size), seed)
    drawn = [pair for count in counts for pair in names(issuer.draw(count))]
    assert len(drawn) == len(set(drawn)) == sum(counts)
    assert [epoch for _, epoch in drawn] == [i // size for i in range(len(drawn))]
    for epoch in range(len(drawn) // size):
        assert {name for name, e in drawn if e == epoch} == {f"p{i}" for i in range(size)}


def test_same_seed_same_order_other_epochs_differ():
    one, two, other = Issuer(problems(50), 1), Issuer(problems(50), 1), Issuer(problems(50), 2)
    first = names(one.draw(100))
    assert first == names(two.draw(100)) != names(other.draw(100))
    assert [name for name, _ in first[:50]] != [name for name, _ in first[50:]]


@given(st.integers(1, 9), st.integers(0, 30), st.integers(1, 30), st.data())
def test_a_resume_issues_what_was_not_finished_first_and_then_goes_on(size, before, after, data):
    issuer = Issuer(problems(size), 4)
    drawn = names(issuer.draw(before))
    unfinished = data.draw(st.lists(st.sampled_from(drawn), unique=True)) if drawn else []
    saved = json.loads(json.dumps(issuer.to_state()))
    resumed = Issuer(problems(size), 4)
    resumed.restore(saved, unfinished)
    count = len(unfinished) + after
    assert names(resumed.draw(count)) == unfinished + names(issuer.draw(after))


def test_a_resume_before_all_was_issued_again():
    issuer = Issuer(problems(4), 0)
    issuer.draw(3)
    issuer.restore(issuer.to_state(), [("p1", 0), ("p2", 0)])
    assert names(issuer.draw(1)) == [("p1", 0)]
    again = Issuer(problems(4), 0)
    again.restore(issuer.to_state(), [("p1", 0)])
    assert names(again.draw(2)) == [("p1", 0), ("p2", 0)]


def test_vanished_problem_is_named():
    with pytest.raises(ValueError, match="p9"):
        Issuer(problems(3), 0).restore({"epoch": 0, "position": 1, "again": []}, [("p9", 0)])


def test_synchronous_capacity_is_the_batch_of_the_current_step():
    assert [capacity(3, 0, 24, admitted) for admitted in (72, 80, 96, 97)] == [24, 16, 0, 0]


def test_one_step_ahead():
    assert capacity(3, 1, 24, 72) == 48
    assert capacity(3, 1, 24, 96) == 24
    assert capacity(3, 1, 24, 120) == 0


@given(st.integers(0, 50), st.integers(0, 4), st.integers(1, 30), st.integers(0, 2000))
def test_what_is_admitted_is_never_too_stale(version, allowed, batch, admitted):
    room = capacity(version, allowed, batch, admitted)
    assert room >= 0
    if room:
        last_step = (admitted + room - 1) // batch
        assert staleness(last_step, version) <= allowed
