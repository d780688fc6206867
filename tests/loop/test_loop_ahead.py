"""How far sampling may run ahead of training, and that all ranks see the same end."""

import asyncio

from tests.loop.builders import digests, play


async def settle(done=lambda: True):
    """Lets everything that can go on go on, until `done()`, and then a little longer."""
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.05)


def test_without_staleness_nothing_is_admitted_ahead(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        await ranks.pull(0)
        early = asyncio.create_task(fakes.controller.next_batch(ranks.attempt, 1, 1))
        await settle()
        assert len(fakes.asked) == 4 and not early.done()
        assert [what for what, _ in (await fakes.controller.progress(-1))["waits"]] == ["version 1 of the weights"]
        assert await ranks.step(0)
        assert (await early).batch_id == "step-1"
        assert (await ranks.pull(1))[1].digest == (await early).digest

    play(scene, tmp_path)


def test_with_staleness_one_exactly_one_step_is_admitted_ahead(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        await ranks.pull(0)
        await settle(lambda: len(fakes.asked) >= 8)
        assert len(fakes.asked) == 8
        ahead = await ranks.pull(1)
        late = asyncio.create_task(fakes.controller.next_batch(ranks.attempt, 2, 0))
        await settle()
        assert len(fakes.asked) == 8 and not late.done()
        assert await ranks.step(0)
        await settle(late.done)
        assert len(fakes.asked) == 12 and (await late).batch_id == "step-2"
        assert await ranks.step(1) and digests(ranks.batches[1][0]) == digests(ahead)
        assert await ranks.step(2)
        return fakes.tracker.steps, await fakes.controller.finish()

    steps, result = play(scene, tmp_path, "loop.max_staleness=1")
    assert [numbers["version/staleness_max"] for _, numbers in steps] == [0, 1, 1]
    assert all(numbers["version/staleness_violations"] == 0 for _, numbers in steps)
    assert result["ledger"]["trained"] == 12


def test_a_batch_that_one_rank_has_goes_to_all_even_when_the_run_stops(tmp_path):
    async def scene(fakes, ranks):
        await ranks.start()
        await ranks.pull(0)
        one = await fakes.controller.next_batch(ranks.attempt, 1, 1)
        await fakes.controller.step_done(ranks.attempt, 0, 0, {"parity_mean": 1.0})
        await ranks.publish(0)
        zero = await fakes.controller.next_batch(ranks.attempt, 1, 0)
        assert zero is not None and zero.digest == one.digest
        await ranks.publish(1)
        assert await ranks.pull(2) == [None, None]

    play(scene, tmp_path, "loop.max_staleness=1")
