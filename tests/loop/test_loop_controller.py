"""A run played against the controller: no Ray, no engines, no learner."""

import asyncio
import math

import pytest

from pipeline.engine import SwapReceipt
from pipeline.loop.collect import Collector
from pipeline.loop.pool import EngineFailed
from tests.loop.builders import Ranks, digests, play


def test_a_synchronous_run(tmp_path):
    async def scene(fakes, ranks):
        model = fakes.cfg.model.path
        assert await fakes.controller.begin() == f"engine 0\n{model} on cpu\n\nengine 1\n{model} on cpu"
        assert await ranks.run() == 3
        return fakes, ranks, await fakes.controller.finish(), await fakes.controller.progress(0)

    fakes, ranks, result, progress = play(scene, tmp_path)
    assert result["stopped"] is None and result["user_error"] is False
    assert (result["steps"], result["version"], result["digest"]) == (3, 3, "digest3")
    assert result["ledger"] == {"issued": 0, "scored": 0, "dropped": 0, "trained": 12} and result["dropped"] == {}
    assert len(fakes.asked) == len(set(fakes.asked)) == 12
    assert all(engine.swaps == [0, 1, 2, 3] for engine in fakes.engines)
    assert [version for version, _, _ in fakes.publisher.published] == [2, 3]
    assert (tmp_path / "run" / "published" / "v3" / "weights").read_text() == "2"

    assert [step for step, _ in fakes.tracker.steps] == [0, 1, 2]
    for step, numbers in fakes.tracker.steps:
        assert numbers["version/policy"] == step and numbers["version/staleness_violations"] == 0
        assert numbers["ledger/trained"] == 4 * (step + 1) and numbers["train/loss"] == 0.5
        assert numbers["seconds/step"] >= numbers["seconds/rollout"]
    assert set(fakes.tracker.files) == {"traces/step_00001.html", "traces/step_00003.html"}
    for name, page in fakes.tracker.files.items():
        assert f"Traces of step {int(name[-10:-5])}<" in page
    assert [step for step, _ in progress["lines"]] == [1, 2] and progress["waits"] == []
    assert progress["lines"][-1][1].startswith("step 3/3") and progress["done"] == 3


def test_all_ranks_get_parts_of_one_batch(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        return await ranks.pull(0)

    one, two = play(scene, tmp_path)
    assert (one.batch_id, one.digest, one.shape) == (two.batch_id, two.digest, two.shape)
    rows = [len(micro) for batch in (one, two) for mini in batch.mini_batches for micro in mini.micro_batches]
    assert sum(rows) == 4 * 2


def test_a_replayed_step_gets_the_identical_batch(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        assert await ranks.step(0) and await ranks.step(1)
        before = fakes.controller.collector.ledger.to_state(), fakes.controller.collector.rule.state()
        asked = list(fakes.asked)
        replay = Ranks(fakes)
        await replay.start(0)  # the ranks died before any checkpoint: an attempt from the beginning
        assert replay.attempt == ranks.attempt + 1
        assert await replay.step(0) and await replay.step(1)
        assert fakes.asked == asked
        assert (fakes.controller.collector.ledger.to_state(), fakes.controller.collector.rule.state()) == before
        assert await replay.step(2)
        return ranks, replay, await fakes.controller.finish()

    ranks, replay, result = play(scene, tmp_path)
    for step in (0, 1):
        assert digests(replay.batches[step][0]) == digests(ranks.batches[step][0])
    assert result["ledger"]["trained"] == 12


def test_attempts_are_numbered_by_token(tmp_path):
    async def scene(fakes, ranks):
        begin = fakes.controller.begin_attempt
        return [await begin("a"), await begin("b"), await begin("a"), await begin("c")]

    assert play(scene, tmp_path) == [1, 2, 1, 3]


def test_publishing_and_reporting_twice_is_harmless(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        await ranks.publish(-1)
        await ranks.step(0)
        for _ in range(2):
            await fakes.controller.step_done(ranks.attempt, 0, 0, {"parity_mean": 0.0})
            await ranks.publish(0)
        await fakes.controller.checkpointed(ranks.attempt, 0, {})
        await fakes.controller.checkpointed(ranks.attempt, 0, {})
        await ranks.publish(0)
        assert await ranks.step(1) and await ranks.step(2) and not await ranks.step(3)
        return await fakes.controller.finish()

    result = play(scene, tmp_path)
    assert result["ledger"]["trained"] == 12 and (result["version"], result["digest"]) == (3, "digest3")


def test_a_batch_that_cannot_be_filled_ends_the_run_for_all_ranks(tmp_path):
    async def scene(fakes, ranks):
        assert await ranks.run() == 0
        assert await ranks.pull(0) == [None, None]
        return await fakes.controller.finish()

    result = play(scene, tmp_path, "curriculum.max_rounds=1", verdicts=lambda request: [False] * request.n)
    assert result["user_error"] is True
    assert result["stopped"].startswith("step 0: only 0 of 4 groups") and "curriculum.max_rounds" in result["stopped"]


def test_a_failing_engine_ends_the_run_and_is_named(tmp_path):
    async def scene(fakes, ranks):
        async def generate(requests):
            raise RuntimeError("out of memory")

        await ranks.start()
        assert await ranks.step(0)
        fakes.engines[1].generate = generate
        assert await ranks.pull(1) == [None, None]
        return await fakes.controller.finish()

    result = play(scene, tmp_path)
    assert result["stopped"] == "step 1: rollout engine 1 failed to generate: out of memory"
    assert result["user_error"] is False and result["ledger"]["trained"] == 4


@pytest.mark.parametrize("parity", [0.02, math.nan])
def test_engines_with_other_weights_stop_the_run(tmp_path, parity):
    async def scene(fakes, ranks):
        await ranks.start()
        assert await ranks.step(0)
        ranks.parity = parity
        early = asyncio.create_task(fakes.controller.next_batch(ranks.attempt, 2, 1))  # a rank ahead of rank 0
        assert await ranks.step(1)
        assert await early is None and await ranks.pull(2) == [None, None]
        return await fakes.controller.finish(), fakes.tracker.steps

    result, steps = play(scene, tmp_path)
    assert "step 1: engine and learner log-probs of the same traces differ" in result["stopped"]
    assert result["user_error"] is False and len(steps) == 2


@pytest.mark.parametrize("options", [["engine.dtype=bfloat16"], ["publish.parity_limit=0.1"]])
def test_parity_is_compared_only_where_it_can_be_exact(tmp_path, options):
    async def scene(fakes, ranks):
        ranks.parity = 0.02
        return await ranks.run(), await fakes.controller.finish()

    steps, result = play(scene, tmp_path, *options)
    assert steps == 3 and result["stopped"] is None


def test_waiting_for_weights_has_a_deadline(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        await ranks.pull(0)
        assert await fakes.controller.next_batch(ranks.attempt, 1, 1) is None
        return await fakes.controller.finish()

    result = play(scene, tmp_path, "loop.step_deadline_s=0.05")
    assert "waited 0.05 s for version 1 of the weights" in result["stopped"]


def test_a_bug_is_not_taken_for_the_end_of_the_run(tmp_path, monkeypatch):
    async def scene(fakes, ranks):
        await ranks.start()
        with pytest.raises(ZeroDivisionError):
            await ranks.pull(0)

    async def collect(self, step):
        raise ZeroDivisionError

    monkeypatch.setattr(Collector, "collect", collect)
    play(scene, tmp_path)


def test_a_swap_that_is_not_confirmed_moves_nothing(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        assert await ranks.step(0)

        async def swap(folder, version, digest, mode, verified):
            return SwapReceipt(version - 1, "digest1", 0.0, 0.0, 1)

        fakes.engines[0].swap = swap
        with pytest.raises(EngineFailed, match="rollout engine 0 answers version 1"):
            await ranks.publish(1)
        return fakes.controller.version, (await fakes.controller.progress(-1))["done"]

    assert play(scene, tmp_path) == (1, 1)
