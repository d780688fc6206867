"""A new controller goes on from a checkpoint's state: nothing is lost, nothing is trained twice."""

import asyncio
from collections import Counter

import pytest

from pipeline.config import UserError
from tests.loop.builders import Fakes, Ranks

STEPS = ["run.steps=8", "problems.train.0.size=10", "publish.every=100"]


def play(scene):
    return asyncio.run(scene())


def mixed_or_easy(request):
    return [True, sum(map(ord, request.problem_id)) % 3 == 0]


async def until_checkpoint(fakes, steps, every):
    ranks = Ranks(fakes, checkpoint_every=every)
    await ranks.start()
    for step in range(steps):
        assert await ranks.step(step)
    return ranks


async def resumed(fakes, state):
    controller = fakes.new_controller()
    ranks = Ranks(fakes, controller)
    await ranks.start(state["step"], state)
    return controller, ranks


def issues_by_state(rows):
    return {f"{epoch}/{name}": state for name, epoch, state, _ in rows}


def test_resume_goes_on_as_if_nothing_had_happened(tmp_path):
    async def scene():
        whole = Fakes(tmp_path / "a", *STEPS, verdicts=mixed_or_easy)
        straight = Ranks(whole)
        assert await straight.run() == 8
        fakes = Fakes(tmp_path / "b", *STEPS, verdicts=mixed_or_easy)
        first = await until_checkpoint(fakes, 4, every=4)
        controller, second = await resumed(fakes, first.saved)
        step = 4
        while await second.step(step):
            step += 1
        found, wanted = controller.collector, whole.controller.collector
        assert step == 8 and found.ledger.to_state() == wanted.ledger.to_state()
        assert found.rule.state() == wanted.rule.state() and found.issuer.to_state() == wanted.issuer.to_state()
        for number in range(4, 8):
            assert [b.digest for b in second.batches[number][0]] == [b.digest for b in straight.batches[number][0]]

    play(scene)


def test_what_was_lost_after_the_checkpoint_is_issued_again(tmp_path):
    async def scene():
        fakes = Fakes(tmp_path, *STEPS)
        first = await until_checkpoint(fakes, 3, every=2)  # the run died after step 2; the checkpoint is after step 1
        lost = {group.issue_id for group in fakes.controller.steps[2].collected.groups}
        for engine in fakes.engines:
            engine.asked.clear()
        controller, ranks = await resumed(fakes, first.saved)
        await ranks.pull(2)
        assert set(fakes.asked) == lost and len(lost) == 4
        for step in range(2, 8):
            assert await ranks.step(step)
        assert len(fakes.asked) == len(set(fakes.asked)) == 24
        rows = controller.collector.ledger.to_state()
        assert Counter((epoch, state) for _, epoch, state, _ in rows) == {
            (0, "trained"): 10,
            (1, "trained"): 10,
            (2, "trained"): 10,
            (3, "trained"): 2,
        }

    play(scene)


def test_work_ahead_of_the_checkpoint_is_taken_back_and_comes_first(tmp_path):
    async def scene():
        fakes = Fakes(tmp_path, *STEPS, "loop.max_staleness=1")
        ranks = Ranks(fakes, checkpoint_every=2)
        await ranks.start()
        assert await ranks.step(0)
        await ranks.pull(1)
        while 2 not in fakes.controller.steps:
            await asyncio.sleep(0.002)  # step 2 is sampled and scored while step 1 trains
        ahead = {group.issue_id for group in fakes.controller.steps[2].collected.groups}
        assert await ranks.step(1)
        held = {key for key, state in issues_by_state(ranks.saved["ledger"]).items() if state != "trained"}
        assert held == ahead and ranks.saved["issuer"]["position"] == 2 and ranks.saved["issuer"]["epoch"] == 1
        controller, second = await resumed(fakes, ranks.saved)
        assert controller.collector.ledger.counts() == {"issued": 0, "scored": 0, "dropped": 0, "trained": 8}
        await second.pull(2)
        assert {group.issue_id for group in controller.steps[2].collected.groups} == ahead
        for step in range(2, 8):
            assert await second.step(step)
        rows = controller.collector.ledger.to_state()
        assert Counter(epoch for _, epoch, _, _ in rows) == {0: 10, 1: 10, 2: 10, 3: 2}
        assert {state for _, _, state, _ in rows} == {"trained"}

    play(scene)


def test_kappa_goes_on(tmp_path):
    async def scene():
        options = ["curriculum.kappa_start=0.3", "curriculum.kappa_rate=0.5", "curriculum.nrp_start=0.7"]
        fakes = Fakes(tmp_path, *STEPS, *options, verdicts=mixed_or_easy)
        first = await until_checkpoint(fakes, 2, every=2)
        moved = fakes.controller.collector.rule.state()
        assert moved["kappa"] != 0.3 and moved["nrp_ratio"] != 0.7
        controller, _ = await resumed(fakes, first.saved)
        assert controller.collector.rule.state() == moved

    play(scene)


def test_a_controller_that_lives_keeps_its_own_state(tmp_path):
    async def scene():
        fakes = Fakes(tmp_path, *STEPS)
        first = await until_checkpoint(fakes, 3, every=2)
        collector = fakes.controller.collector
        before, asked = collector.ledger.to_state(), list(fakes.asked)
        again = Ranks(fakes)
        await again.start(2, first.saved)
        assert collector.ledger.to_state() == before
        assert await again.step(2) and fakes.asked == asked
        assert [b.digest for b in again.batches[2][0]] == [b.digest for b in first.batches[2][0]]
        assert await again.step(3)

    play(scene)


def test_batches_before_a_checkpoint_are_forgotten(tmp_path):
    async def scene():
        fakes = Fakes(tmp_path, *STEPS)
        await until_checkpoint(fakes, 3, every=2)
        assert set(fakes.controller.steps) == set(fakes.controller.tasks) == {2}

    play(scene)


def test_another_curriculum_rule_is_refused(tmp_path):
    async def scene():
        fakes = Fakes(tmp_path, *STEPS)
        state = (await until_checkpoint(fakes, 1, every=1)).saved
        other = Fakes(tmp_path, *STEPS, "curriculum.rule=constant")
        with pytest.raises(UserError, match="curriculum.rule"):
            await resumed(other, state)

    play(scene)
