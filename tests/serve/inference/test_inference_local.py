"""Inferences by a real engine of the shipped model, which drafts by n-grams under a policy."""

import asyncio
import time

import pytest

from pipeline.config import UserError
from serve import InferenceOptimizer

pytestmark = pytest.mark.slow

PROMPT = "What is 7 + 5 - 2 + 8?"
GREEDY = {"temperature": 0.0}


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def optimizer(runner, tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "engine.yaml"
    file.write_text(
        "model: {path: infra/models/tiny}\n"
        "engine: {device: cpu, dtype: float32, max_model_len: 512, max_num_seqs: 16, kv_cache_bytes: 67108864}\n"
        "admission: {policy: priority}\n"
        "speculation:\n"
        "  {method: ngram, k_max: 4, prompt_lookup_min: 2, prompt_lookup_max: 4, policy: static,"
        " policy_options: {k: 4}}\n"
    )
    optimizer = InferenceOptimizer(file)
    runner.run(optimizer.start())
    yield optimizer
    runner.run(optimizer.close())


def unfinished(optimizer):
    return optimizer._backend._engine.get_num_unfinished_requests()


def test_a_reply_says_what_made_it(runner, optimizer):
    result = runner.run(optimizer.infer(PROMPT, use_speculative=True, priority=-1, **GREEDY))
    assert "18" in result.text and "</think>" not in result.text + result.reasoning
    assert result.reasoning and result.reasoning_tokens > 20 and 0 < result.answer_tokens < 30
    assert result.output_tokens < 512 - result.prompt_tokens and result.finish == "stop"
    assert 0 < result.acceptance.accepted <= result.acceptance.drafted and 0 < result.acceptance.share <= 1
    assert 0 < result.first_token_s < result.total_s and result.weights.startswith("v")
    assert result.effective == {
        "speculative": True, "method": "ngram", "max_draft_tokens": 4, "thinking_budget": None, "priority": -1,
    }  # fmt: skip


def test_speculation_is_switched_for_one_request(runner, optimizer):
    async def both():
        return await asyncio.gather(
            optimizer.infer(PROMPT, use_speculative=False, **GREEDY), optimizer.infer(PROMPT, **GREEDY)
        )

    without, drafted = runner.run(both())
    assert without.acceptance is None and without.effective["speculative"] is False
    assert drafted.acceptance is not None
    assert (without.text, without.reasoning) == (drafted.text, drafted.reasoning)


def test_a_budget_ends_the_thinking(runner, optimizer):
    free, bound = (
        runner.run(optimizer.infer(PROMPT, use_speculative=False, thinking_budget=budget, **GREEDY))
        for budget in (None, 12)
    )
    assert free.reasoning_tokens > 20 and bound.reasoning_tokens <= 13 and bound.effective["thinking_budget"] == 12
    assert free.reasoning.startswith(bound.reasoning.strip()[:20])


def test_calls_at_the_same_time_are_one_batch(runner, optimizer):
    async def many():
        return await asyncio.gather(*(optimizer.infer(PROMPT, seed=seed, temperature=1.0) for seed in range(8)))

    optimizer.counters["most_running"] = 0
    results = runner.run(many())
    assert optimizer.counters["most_running"] > 1
    assert len({result.reasoning for result in results}) > 1


def test_pieces_are_the_whole(runner, optimizer):
    async def pieces():
        return [piece async for piece in optimizer.stream(PROMPT, **GREEDY)]

    found = runner.run(pieces())
    result = found[-1].result
    for phase, whole in (("reasoning", result.reasoning), ("answer", result.text)):
        assert "".join(piece.text for piece in found if piece.phase == phase) == whole
    assert len(found) > 10 and all(piece.result is None for piece in found[:-1])


def test_late_and_cancelled_requests_are_aborted(runner, optimizer):
    async def cancelled():
        before = optimizer.counters["aborted"]
        with pytest.raises(TimeoutError, match=r"of tiny gave no whole reply within 0\.05 s: \d+ characters"):
            await optimizer.infer(PROMPT, timeout_s=0.05, max_tokens=400, temperature=1.0)
        task = asyncio.create_task(optimizer.infer(PROMPT, temperature=1.0))
        while not unfinished(optimizer):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        end = time.monotonic() + 5
        while unfinished(optimizer) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return optimizer.counters["aborted"] - before

    assert runner.run(cancelled()) == 2
    assert unfinished(optimizer) == 0 and optimizer.counters["timeouts"] == 1


def test_what_does_not_fit_is_refused(runner, optimizer):
    with pytest.raises(UserError, match="max_draft_tokens=9 caps nothing"):
        runner.run(optimizer.infer(PROMPT, max_draft_tokens=9))
    with pytest.raises(UserError, match=r"do not fit into engine.max_model_len \(512\)"):
        runner.run(optimizer.infer(PROMPT, max_tokens=510))
    with pytest.raises(UserError, match="temperature"):
        runner.run(optimizer.infer(PROMPT, temperature=-1.0))
