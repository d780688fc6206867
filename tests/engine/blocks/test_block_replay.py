"""vLLM's block manager under streams whose counts can be worked out by hand. Imports vLLM, starts no engine."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.engine.blocks.replay import Setting, replay
from pipeline.engine.blocks.trace import Texts, TracedRequest

pytestmark = pytest.mark.slow  # importing vLLM takes seconds
TEXTS = Texts()


def request(name, prompt, output, shared=0, salt=None):
    ids = (*TEXTS.ids("shared", shared), *TEXTS.ids(name, prompt - shared))
    return TracedRequest(ids, tuple(TEXTS.ids((name, "reply"), output)), salt)


def run(requests, size=32, blocks=1000, **setting):
    return replay(
        requests, size, blocks, Setting(**{"max_running": 64, "step_tokens": 4096, "chunked": False} | setting)
    )


def test_one_request_by_hand():
    row = run([request("a", 50, 15)])
    # One step computes the prompt, 14 more a token each: the last is not fed back. 64 tokens fill two blocks.
    assert (row.steps, row.computed_tokens, row.prompt_tokens) == (15, 64, 50)
    assert (row.entries, row.longest_table, row.hashes, row.peak_tokens) == (2, 2, 2, 64)
    assert row.held_tokens == 64 and row.tail_tokens == sum(64 - n for n in range(50, 65)) / 15
    assert (row.preemptions, row.blocked, row.hit_tokens, row.recomputed_tokens) == (0, 0, 0, 0)


@pytest.mark.parametrize(("size", "hit"), [(32, 96), (64, 64), (128, 0)])
def test_hits_end_where_a_block_ends(size, hit):
    row = run([request("a", 150, 4, shared=100), request("b", 150, 4, shared=100)], size)
    assert row.hit_tokens == hit and row.computed_tokens == 2 * 153 - hit
    assert run([request("a", 150, 4, shared=100)] * 2, size, prefix_cache=False).hit_tokens == 0


def test_a_prompt_that_is_cached_whole_leaves_its_last_token_to_compute():
    row = run([request("a", 64, 2), request("a", 64, 2)])
    assert row.hit_tokens == 32


def test_salts_part_tenants():
    mine, theirs = request("a", 150, 4, 100, "mine"), request("a", 150, 4, 100, "theirs")
    assert run([mine, theirs]).hit_tokens == 0
    assert run([mine, theirs, mine]).hit_tokens == 128


def test_a_later_prompt_finds_an_earlier_reply():
    first = request("a", 64, 64)
    then = TracedRequest((*first.prompt, *first.output, 1, 2), (3,))
    assert run([first, then], max_running=1).hit_tokens == 96  # the reply's last token was never fed back


def test_a_full_pool_blocks_and_preempts():
    both = [request("a", 60, 40), request("b", 60, 40)]
    # 99 tokens each take 4 blocks; 5 hold both prompts and not both replies.
    row = run(both, blocks=6)
    assert row.preemptions == 1 and row.blocked > 0
    assert row.recomputed_tokens == 32 and row.computed_tokens == 2 * 99 + 32  # of its 64, a block was still cached
    roomy = run(both, blocks=9)
    assert (roomy.preemptions, roomy.blocked, roomy.recomputed_tokens) == (0, 0, 0) and row.steps > roomy.steps


def test_chunks_keep_to_the_budget_of_a_step():
    long = request("a", 100, 2)
    assert run([long], step_tokens=30, chunked=True).steps == 5  # 30 + 30 + 30 + 10, then the reply's second token
    with pytest.raises(UserError, match="more than a step's 30"):
        run([long], step_tokens=30)


def test_sequences_at_once():
    four = [request(f"r{i}", 10, 5) for i in range(4)]
    assert [run(four, max_running=n).steps for n in (1, 2, 4)] == [20, 10, 5]


def test_what_never_fits():
    with pytest.raises(
        UserError, match="request 2 of the trace has 200 tokens and needs 7 blocks of 32; the cache has 5"
    ):
        run([request("a", 10, 10), request("b", 100, 100)], blocks=6)


def test_waste_follows_the_law_of_the_half_block_and_the_pool_is_left_empty():
    rng = random.Random(3)
    requests = [request(f"w{i}", rng.randint(20, 900), rng.randint(1, 200)) for i in range(300)]
    rows = [run(requests, size, blocks=(1 << 17) // size, chunked=True) for size in (16, 64, 256)]
    for row in rows:
        assert row.tail_tokens == pytest.approx((row.block_size - 1) / 2, rel=0.15)
        assert row.computed_tokens == sum(r.tokens - 1 for r in requests)
    assert [row.entries for row in rows] == sorted((row.entries for row in rows), reverse=True)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 120), st.integers(1, 60)), min_size=1, max_size=12),
    st.sampled_from([16, 32, 64]),
    st.integers(13, 40),
    st.booleans(),
    st.integers(1, 6),
)
def test_whatever_comes_is_computed_once_and_again_only_after_a_preemption(lengths, size, blocks, chunked, at_once):
    requests = [request(f"h{i}", *pair) for i, pair in enumerate(lengths)]
    row = run(requests, size, blocks, chunked=chunked, step_tokens=50 if chunked else 4096, max_running=at_once)
    assert row.hit_tokens == 0  # nothing in common
    assert row.computed_tokens == sum(r.tokens - 1 for r in requests) + row.recomputed_tokens
    assert row.peak_tokens <= (blocks - 1) * size and row.held_tokens <= row.peak_tokens
    assert row.longest_table == max(-(-(r.tokens - 1) // size) for r in requests)
    assert row.preemptions or not row.recomputed_tokens
