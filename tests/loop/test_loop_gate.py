"""A run whose publisher has a gate: what is measured, under which weights, and what a failure costs."""

import asyncio

from pipeline.config import UserError
from pipeline.evaluation.tally import Measurement
from pipeline.loop.gate import RunGate
from pipeline.problems import load_problems
from pipeline.weights.reference import REFERENCE_NAME, make_reference
from tests.loop.builders import Ranks, play

GATE = (
    "publish.endpoint=true",
    "publish.gate=true",
    "problems.held_out=[{kind: tiny, name: chain_sum, split: held_out, size: 4, options: {max_terms: 3}}]",
    "gate.min_problems=2",
    "gate.samples=2",
)


class GatedPublisher:
    """Refuses odd versions. `champion` is the one without a measurement, until that is kept; the first `faults` times
    nobody can say."""

    def __init__(self, champion=None, faults=0):
        self.champion, self.published, self.kept, self.asked, self.faults = champion, [], [], [], faults

    async def unmeasured_champion(self, asked):
        self.asked.append(asked)
        if len(self.asked) <= self.faults:
            raise UserError("the registry is away")
        return self.champion

    async def keep_measurement(self, measured):
        self.kept.append(Measurement.from_plain(measured))
        self.champion = None

    async def publish(self, folder, version, digest, step, measured):
        self.published.append((version, measured))
        return {"refused": "accuracy 0"} if version % 2 else {"swapped": True}


def gated(scene, folder, *overrides, **options):
    async def whole(fakes, _):
        sources = fakes.cfg.problems.held_out
        for engine in fakes.engines:
            engine.problems |= {p.id: p for p in load_problems(sources, fakes.cfg.run.seed)} if sources else {}
        fakes.publisher = GatedPublisher(**options)
        fakes.controller = fakes.new_controller()
        return await scene(fakes, Ranks(fakes))

    return play(whole, folder, *GATE, *overrides)


async def run(fakes, ranks):
    steps = await ranks.run()
    return steps, await fakes.controller.finish(), fakes, (await fakes.controller.progress(-1))["lines"]


def test_what_is_published_is_measured_under_its_own_weights(tmp_path):
    steps, result, fakes, lines = gated(run, tmp_path)
    assert steps == 3 and result["stopped"] is None
    assert [version for version, _ in fakes.publisher.published] == [2, 3]
    for version, plain in fakes.publisher.published:
        found = Measurement.from_plain(plain)
        assert (found.version, found.digest, found.parity) == (version, f"digest{version}", None)
        assert found.asked == fakes.publisher.asked[0] and len(found.problems) == 4
        assert {(t.replies, t.right, t.unknown) for t in found.problems.values()} == {(2, 1, 0)}
    assert lines[-1][1] == "version 3 is not served: accuracy 0"  # and the run went on to its end
    assert sum(issue.startswith("gate/") for issue in fakes.asked) == 8


def test_an_unknown_champion_is_measured_before_the_first_weights(tmp_path):
    champion = {"folder": str(tmp_path), "version": 7, "digest": "seven"}
    _, _, fakes, _ = gated(run, tmp_path, champion=champion)
    (kept,) = fakes.publisher.kept
    assert (kept.version, kept.digest, len(kept.problems)) == (7, "seven", 4)
    assert fakes.engines[0].swaps[:2] == [7, 0]


def test_a_champion_that_could_not_be_measured_is_tried_again(tmp_path):
    champion = {"folder": str(tmp_path), "version": 7, "digest": "seven"}
    _, _, fakes, _ = gated(run, tmp_path, champion=champion, faults=1)
    assert [kept.version for kept in fakes.publisher.kept] == [7] and fakes.controller.gate.failures == 1
    assert fakes.engines[0].swaps[:3] == [0, 7, 1]  # at the swap after the one that failed


def test_a_champion_chosen_meanwhile_is_measured_before_the_next_version(tmp_path):
    async def scene(fakes, ranks):
        asked = fakes.publisher.unmeasured_champion

        async def moved(digest):
            if len(fakes.publisher.asked) == 1:  # a promotion by hand, after the first look
                fakes.publisher.champion = {"folder": str(tmp_path), "version": 7, "digest": "seven"}
            return await asked(digest)

        fakes.publisher.unmeasured_champion = moved
        return await run(fakes, ranks)

    _, _, fakes, _ = gated(scene, tmp_path, "publish.every=1")
    assert [kept.version for kept in fakes.publisher.kept] == [7]
    assert fakes.engines[0].swaps[:4] == [0, 1, 7, 2]


def test_the_snapshots_own_log_probs_are_compared(tmp_path):
    async def scene(fakes, ranks):
        async def fingerprint(token_ids):
            return [-0.5] * (len(token_ids) - 1)

        for engine in fakes.engines:
            engine.fingerprint = fingerprint
        snapshot = tmp_path / "run" / "snapshots" / "v2"
        snapshot.mkdir(parents=True)
        reference = make_reference(50, lambda ids: [-0.25] * (len(ids) - 1))
        (snapshot / REFERENCE_NAME).write_text(reference.to_json())
        return await run(fakes, ranks)

    _, _, fakes, _ = gated(scene, tmp_path)
    assert [measured["parity"] for _, measured in fakes.publisher.published] == [0.25, None]


def test_a_measurement_that_fails_or_takes_too_long_is_told_and_training_goes_on(tmp_path, monkeypatch):
    async def stuck(self, folder, version, digest):
        await asyncio.sleep(60)

    monkeypatch.setattr(RunGate, "_measured", stuck)
    steps, result, fakes, _ = gated(run, tmp_path, "gate.deadline_s=0.05")
    assert steps == 3 and result["stopped"] is None
    for version, measured in fakes.publisher.published:
        assert measured == {"failed": f"waited 0.05 s for the gate's measurement of version {version}"}


def test_weights_stay_until_they_are_measured(tmp_path, monkeypatch):
    held = []
    original = RunGate._measured

    async def slow(self, folder, version, digest):
        await asyncio.sleep(0.2)
        held.append((version, {actor._behind.version for actor in self.collector.pool.actors}))
        return await original(self, folder, version, digest)

    monkeypatch.setattr(RunGate, "_measured", slow)
    gated(run, tmp_path, "publish.every=1")
    assert held == [(1, {1}), (2, {2}), (3, {3})]


def test_without_held_out_problems_nothing_is_served_and_the_run_says_why(tmp_path):
    _, _, fakes, _ = gated(run, tmp_path, "problems.held_out=[]")
    assert all("needs problems.held_out" in measured["failed"] for _, measured in fakes.publisher.published)
