"""What the endpoint's levers do in a real engine on the tiny model, by counts of steps and tokens. Three engines."""

from types import SimpleNamespace

import pytest

from pipeline.engine.blocks.replay import Setting, replay
from pipeline.engine.blocks.trace import TracedRequest
from tests.engine.stepped import TINY, Engines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HALF = "engine.dtype=bfloat16"
KINDS = {
    "half": ([HALF, "admission={policy: priority, max_requests: 10, max_prefill_tokens: 300}"], {}),
    "fp8": ([HALF, "kv.dtype=fp8"], {}),
    # The endpoint leaves chunks off on CPU, for requests with a seed; these have none.
    "chunks": (
        [f"engine.kv_cache_bytes={24 * 32 * 4096}"],
        {"enable_chunked_prefill": True, "max_num_batched_tokens": 64, "enable_prefix_caching": False},
    ),
}
AT_ONCE = 8  # sequences, of all three engines


@pytest.fixture(scope="module")
def engines():
    made = Engines(KINDS)
    made.once("half", lambda engine: (replies(engine), engine.capacity))
    yield made
    made.close()


def prompt(number, length):
    """Token ids of the tiny model's alphabet; another number, another prompt from its first token on."""
    return [10 + (number * 31 + i * (7 + number)) % 80 for i in range(length)]


# --- scheduling -------------------------------------------------------------------------------------------------------


LENGTHS = [4, 36, 9, 12, 30, 5, 7, 20, 33, 6, 8, 5, 11, 40, 4, 10]


def steps_of(engine, groups):
    """Steps for groups of requests one after the other, each group in full before the next."""
    before = engine.steps
    for group in groups:
        engine.finish(*(engine.add(prompt(number, 12), LENGTHS[number]) for number in group))
    return engine.steps - before


def test_continuous_batching_by_steps(engines):
    engine, everyone = engines.get("half"), range(len(LENGTHS))
    alone = steps_of(engine, [[number] for number in everyone])
    fixed = steps_of(engine, [everyone[:AT_ONCE], everyone[AT_ONCE:]])
    continuous = steps_of(engine, [everyone])
    # A request takes as many steps as it has tokens; a fixed group as many as its longest; and where the next joins as
    # soon as one leaves, the ninth takes the place of the first that ends.
    assert (alone, fixed) == (sum(LENGTHS), 36 + 40)
    assert max(40, sum(LENGTHS) / AT_ONCE) <= continuous < fixed < alone


def late_beside_early(engine, early_priority, late_priority):
    """Steps of the first token of three requests that waited before, and of one that came after them."""
    running = [engine.add(prompt(i, 10), 12 + i) for i in range(AT_ONCE)]  # they end one after the other
    engine.step()
    early = [engine.add(prompt(20 + i, 10), 4, priority=early_priority) for i in range(3)]
    late = engine.add(prompt(40, 10), 4, priority=late_priority)
    records = engine.finish(*running, *early, late)
    assert min(record.first for record in records[AT_ONCE:]) > max(record.first for record in records[:AT_ONCE])
    return [record.first for record in records[AT_ONCE:-1]], records[-1].first


def test_priority_overtakes(engines):
    early, late = late_beside_early(engines.get("half"), early_priority=5, late_priority=-1)
    assert late < min(early) and early == sorted(early)
    early, late = late_beside_early(engines.get("half"), early_priority=5, late_priority=5)
    assert late > max(early)


def test_a_flood_is_refused_with_503_and_counted(engines):
    """The engine's own door, as its HTTP server asks it for each request, before requests that are really there."""
    from vllm.exceptions import MaxQueuedTokensError, QueueOverflowError
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = engines.get("half")
    refused = []
    door = SimpleNamespace(
        scheduler_config=engine.config.scheduler_config,
        admission_stats=None,
        get_num_unfinished_requests=engine.engine.get_num_unfinished_requests,
        get_num_queued_tokens=engine.engine.output_processor.get_num_queued_tokens,
        _record_admission_rejection=refused.append,
    )

    def come(length, count):
        statuses = []
        for number in range(count):
            try:
                AsyncLLM.check_admission(door)
                engine.add(prompt(number, length), 4)
                statuses.append(200)
            except (QueueOverflowError, MaxQueuedTokensError) as error:
                statuses.append(int(error.http_status))
        return statuses

    assert come(12, 40) == [200] * 10 + [503] * 30
    assert refused == ["max_num_queued_reqs"] * 30
    engine.finish()
    refused.clear()
    assert come(100, 8) == [200] * 3 + [503] * 5  # the third brings the prompts to 300 tokens
    assert refused == ["max_num_queued_tokens"] * 5
    engine.finish()
    assert come(12, 2) == [200] * 2
    engine.finish()


# --- prefix cache -----------------------------------------------------------------------------------------------------


def test_salts_part_tenants(engines):
    engine = engines.get("half")
    shared = prompt(77, 130)

    def cached(salt):
        (record,) = engine.finish(engine.add(shared, 2, salt=salt))
        return record.cached

    assert [cached(salt) for salt in ("one", "one", "two", "two", None, None, "one")] == [0, 128, 0, 128, 0, 128, 128]


def replayed(engine, requests, **setting):
    """What `jobs.tune block-size` counts for the engine's own pool and limits."""
    scheduler, cache = engine.config.scheduler_config, engine.config.cache_config
    limits = Setting(
        max_running=scheduler.max_num_seqs,
        step_tokens=scheduler.max_num_batched_tokens,
        chunked=scheduler.enable_chunked_prefill,
        prefix_cache=cache.enable_prefix_caching,
    )
    return replay(requests, cache.block_size, cache.num_gpu_blocks, limits)


def test_the_replay_finds_the_prefixes_that_the_engine_finds(engines):
    engine = engines.get("half")
    prompts = [prompt(500, 150)[: 40 + 10 * n] + prompt(600 + n, 20 + n) for n in range(12)]
    records = engine.finish(*(engine.add(ids, 20) for ids in prompts))
    row = replayed(engine, [TracedRequest(tuple(ids), tuple(range(1000, 1020))) for ids in prompts])
    assert row.hit_tokens == sum(record.cached for record in records) > 0
    assert sum(sum(record.scheduled.values()) for record in records) == row.computed_tokens


# --- chunked prefill --------------------------------------------------------------------------------------------------


def long_beside_shorts(engine, threshold):
    """One prompt of 300 tokens and three of 20, in steps of 64; (long, shorts, tokens of each step)."""
    engine.scheduler.scheduler_config.long_prefill_token_threshold = threshold
    before = engine.steps
    names = [engine.add(prompt(1, 300), 6), *(engine.add(prompt(i, 20), 12) for i in (2, 3, 4))]
    long, *shorts = engine.finish(*names)
    totals = [sum(r.scheduled.get(step, 0) for r in (long, *shorts)) for step in range(before, engine.steps)]
    return long, shorts, before, totals


def test_a_capped_prompt_lets_short_ones_begin_earlier(engines):
    engine = engines.get("chunks")
    free, free_shorts, start, free_totals = long_beside_shorts(engine, 0)
    capped, capped_shorts, again, capped_totals = long_beside_shorts(engine, 32)
    assert max(free_totals) <= 64 and max(capped_totals) <= 64
    # Uncapped it takes whole steps, 64 + 64 + 64 + 64 + 44, and the others begin in the last of them.
    assert [free.scheduled[start + step] for step in range(5)] == [64, 64, 64, 64, 44]
    assert min(record.first for record in free_shorts) - start == 4
    # Capped it leaves half of each step: 20 and 12 tokens, then the other 8 and 20.
    assert max(capped.scheduled.values()) == 32
    assert [record.first - again for record in capped_shorts] == [0, 1, 1]
    assert capped.first - again > free.first - start
    for one, other in zip((free, *free_shorts), (capped, *capped_shorts), strict=True):
        assert one.token_ids == other.token_ids
    (alone,) = engine.finish(engine.add(prompt(1, 300), 1))
    assert list(alone.scheduled.values()) == [64, 64, 64, 64, 44]  # nobody waits: the cap does not hold


# --- the block manager without an engine ------------------------------------------------------------------------------


def test_a_pool_that_is_too_small_preempts_as_the_replay_says(engines):
    engine = engines.get("chunks")
    engine.scheduler.scheduler_config.long_prefill_token_threshold = 0
    sizes = [(90 + 7 * n, 40 + 9 * n) for n in range(12)]  # up to 306 tokens, where the pool holds 736
    before = engine.steps
    records = engine.finish(*(engine.add(prompt(n, size), tokens) for n, (size, tokens) in enumerate(sizes)))
    requests = [TracedRequest(tuple(prompt(n, size)), tuple(range(tokens))) for n, (size, tokens) in enumerate(sizes)]
    row = replayed(engine, requests)
    assert row.preemptions > 0
    assert engine.steps - before == row.steps
    assert sum(sum(record.scheduled.values()) for record in records) == row.computed_tokens


# --- type of the KV cache ---------------------------------------------------------------------------------------------


def questions():
    """Prompts of the kind that the tiny model was taught on; on others it says anything."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for sums in ("3 + 4", "12 + 7 - 5", "8 - 2 + 31", "5 + 5 + 5", "40 - 17", "9 + 26 - 8"):
        message = [{"role": "user", "content": f"{sums} = ?"}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        yield tokenizer.encode(text, add_special_tokens=False)


def replies(engine):
    names = [engine.add(ids, 96) for ids in questions()]
    return engine.finish(*names)


def test_fp8_holds_twice_the_tokens_of_bfloat16_and_says_nearly_the_same(engines):
    half, capacity = engines.kept["half"]
    engine = engines.get("fp8")
    assert (engine.config.cache_config.cache_dtype, engine.capacity) == ("fp8", 2 * capacity)
    eight = replies(engine)
    pairs = list(zip(half, eight, strict=True))
    same = sum(a == b for one, other in pairs for a, b in zip(one.token_ids, other.token_ids, strict=True))
    gaps = [gap for one, other in pairs for gap in first_gaps(one, other)]
    print(f"fp8: {same} of {6 * 96} tokens, mean gap {sum(gaps) / len(gaps):.4f} nats over {len(gaps)}")
    assert same / (6 * 96) > 0.5
    assert 0 < sum(gaps) / len(gaps) < 0.1


def first_gaps(one, other):
    """Differences of log-probs (nats) up to where two replies part."""
    for a, b, p, q in zip(one.token_ids, other.token_ids, one.logprobs, other.logprobs, strict=True):
        if a != b:
            return
        yield abs(p - q)


def test_first_come_first_served_knows_no_priority(engines):
    early, late = late_beside_early(engines.get("fp8"), early_priority=5, late_priority=-1)
    assert late > max(early)
