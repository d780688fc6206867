"""The asynchronous proposer without an engine: what it looks up, what it falls back to, and what its thread drops."""

import json
import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from pipeline.config import UserError
from serve.speculation.drafters import LONGEST, TextDrafter
from serve.speculation.figures import publish, write_figures
from serve.speculation.preparing import Preparer
from serve.speculation.ssd_proposer import BranchingProposer
from serve.speculation.ssd_settings import KEY, SsdSettings

WIDTH = 64


def config(k=3, longest=WIDTH, **ssd):
    return SimpleNamespace(
        additional_config={KEY: ssd},
        speculative_config=SimpleNamespace(num_speculative_tokens=k),
        model_config=SimpleNamespace(max_model_len=longest),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
    )


def step(proposer, *rows):
    """`rows`: (text with what was sampled at its end, how many tokens were sampled)."""
    tokens = np.zeros((len(rows), WIDTH), dtype=np.int32)
    for row, (text, _) in enumerate(rows):
        tokens[row, : len(text)] = text
    sampled = [list(text[len(text) - count :]) for text, count in rows]
    drafts = proposer.propose(sampled, np.array([len(text) for text, _ in rows]), tokens)
    assert proposer.preparer.wait(10)
    return drafts


class Fixed:
    """Drafts text+1, text+2, ...; says the target may add 50 or 60 instead."""

    def draft(self, text, k):
        return [int(text[-1]) + i + 1 for i in range(k)]

    def choices(self, text, draft, widths):
        return [[50, 60][:width] for width in widths]


def test_followers_of_the_longest_phrase_come_first():
    drafter = TextDrafter()
    text = [1, 2, 3, 9, 2, 3, 8, 1, 2, 3]
    assert drafter.draft(text, 3) == [9, 2, 3]  # 1 2 3 was there before; the later 2 3 is shorter
    assert drafter.draft(text[3:], 2) == [8, 1]
    assert drafter.draft([4], 2) == [] and drafter.draft([4, 5], 2) == []
    assert drafter.choices(text, [9], [2, 2]) == [[8], [2]]  # 9 itself is no alternative to 9; 2 followed 9
    assert drafter.choices(text, [9], [0, 0]) == [[], []]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40))
def test_a_draft_follows_a_phrase_that_was_there(text):
    draft = TextDrafter().draft(text, 3)

    def ends_at(place):
        """Length of the phrase that ends there and at the text's end."""
        length = 0
        while length < min(LONGEST, place + 1) and text[place - length] == text[len(text) - 1 - length]:
            length += 1
        return length

    best = max(range(len(text) - 1), key=lambda place: (ends_at(place), place))
    assert draft == (text[best + 1 : best + 4] if ends_at(best) else [])


def test_hits_misses_and_backup():
    proposer = BranchingProposer(config(), Fixed())
    (draft,) = step(proposer, ([5, 6], 1))
    assert draft == [7, 8, 9] and proposer.figures["hits"] == proposer.figures["misses"] == 0
    (draft,) = step(proposer, ([5, 6, 7, 50], 2))  # one accepted, then 50: prepared
    assert draft == [51, 52, 53] and proposer.figures["hits"] == 1
    (draft,) = step(proposer, ([5, 6, 7, 50, 33], 1))  # 33 was not expected
    assert draft == [34, 35, 36]
    assert (proposer.figures["misses"], proposer.figures["backup_drafts"]) == (1, 2)  # the first draft is one too


def test_without_backup_a_miss_drafts_nothing_and_the_next_step_does():
    proposer = BranchingProposer(config(backup="none"), Fixed())
    step(proposer, ([5, 6], 1))
    assert step(proposer, ([5, 6, 33], 1)) == [[]]
    assert step(proposer, ([5, 6, 33, 34], 1)) == [[35, 36, 37]]
    assert proposer.figures["without_draft"] == 1


def test_the_rest_of_a_draft_that_was_cut_stands():
    proposer = BranchingProposer(config(), Fixed())
    step(proposer, ([5, 6], 1))  # drafts 7 8 9; the policy lets 7 through, and the target then writes 8 itself
    assert step(proposer, ([5, 6, 7, 8], 2)) == [[9]]
    assert proposer.figures["hits"] == 1


def test_prefill_chunks_and_the_end_of_the_context_get_no_draft():
    proposer = BranchingProposer(config(longest=8), Fixed())
    assert step(proposer, ([1, 2], 0), ([1, 2, 3, 4, 5, 6], 1)) == [[], [7]]
    assert step(proposer, ([1, 2, 3, 4, 5, 6, 7, 8], 1)) == [[]]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_a_prepared_draft_is_what_a_plain_one_would_be(seed, requests):
    """Whatever the outcomes and however requests mix and leave: with a drafter that depends on the text alone, branch
    and plain draft are the same, so a draft of another text would show."""
    rng, proposer = random.Random(seed), BranchingProposer(config(k=3), TextDrafter())
    texts = [[rng.randrange(3) for _ in range(6)] for _ in range(requests)]
    pending = [[] for _ in texts]
    for _ in range(6):
        order, rows = rng.sample(range(requests), rng.randint(1, requests)), []
        for i in order:
            accepted = rng.randint(0, len(pending[i]))
            new = [*pending[i][:accepted], rng.randrange(3)]
            texts[i] += new
            rows.append((texts[i], len(new)))
        for i, draft in zip(order, step(proposer, *rows), strict=True):
            plain = TextDrafter().draft(texts[i], 3)
            assert draft == plain or (draft and draft == plain[: len(draft)]) or _is_rest(draft, pending[i], texts[i])
            pending[i] = draft
    assert proposer.figures["errors"] == 0


def _is_rest(draft, before, text):
    """The remainder of the last draft, which the text has followed so far."""
    return any(
        draft == before[used:] and text[-used:] == before[:used] for used in range(1, len(before))
    )  # fmt: skip


def test_work_that_was_overtaken_is_dropped_and_errors_are_counted():
    release, done = threading.Event(), []

    def work(job):
        if job == "bad":
            raise ValueError(job)
        assert release.wait(10)
        done.append(job)

    preparer = Preparer(work)
    preparer.submit(["a", "b", "c"])
    while len(preparer._jobs) == 3:  # until it has begun with a
        threading.Event().wait(0.005)
    assert not preparer.wait(0.01)
    preparer.submit(["bad", "d"])
    release.set()
    assert preparer.wait(10) and done == ["a", "d"]
    assert preparer.counters == {"prepared": 2, "dropped": 2, "errors": 1}


def test_settings_are_checked():
    with pytest.raises(UserError, match="did you mean 'branches'"):
        SsdSettings.from_config({"branchs": 2})
    for bad in ({"branches": 0}, {"backup": "neural"}):
        with pytest.raises(UserError, match=KEY):
            SsdSettings(**bad)


def test_figures_are_read_when_asked_for_and_follow_the_latest_engine(tmp_path):
    counts = {"hits": 1}
    publish("spec_test", lambda: counts)
    counts["hits"] = 5
    assert REGISTRY.get_sample_value("spec_test_total", {"event": "hits"}) == 5
    publish("spec_test", lambda: {"hits": 2})
    assert REGISTRY.get_sample_value("spec_test_total", {"event": "hits"}) == 2
    write_figures(tmp_path / "f.json")
    assert json.loads((tmp_path / "f.json").read_text())["spec_test"] == {"hits": 2}
