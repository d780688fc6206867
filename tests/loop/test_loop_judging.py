"""What a run does with its judge: its identity, its counts, its warnings, its end."""

import asyncio
import json

import pytest
from ray.exceptions import RayActorError

from pipeline.judge import JudgeActor, JudgeFailure, PrefixRequest
from pipeline.loop.assemble import RemoteJudge
from pipeline.loop.judging import judge_identity
from pipeline.loop.step_metrics import judge_counts
from pipeline.tracking import check
from tests.loop.builders import Fakes, Remote


class Describes:
    def __init__(self, **identity):
        self.identity = {"name": "learned", **identity}

    @property
    def describe(self):
        return self

    def remote(self):
        return self.identity


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("pipeline.loop.judging.get", lambda value, seconds, whom: value)


def test_the_judge_is_named_recorded_and_compared_on_resume(tmp_path):
    one, two = Describes(digest="a" * 64, backend="vllm"), Describes(digest="b" * 64, backend="vllm")
    identity, line = judge_identity(one, tmp_path / "run", 5)
    assert line == f"judge: learned digest {'a' * 12} backend vllm"
    assert json.loads((tmp_path / "run/judge.json").read_text()) == identity == one.identity
    other_backend = Describes(digest="a" * 64, backend="transformers")
    assert judge_identity(other_backend, tmp_path / "run", 5)[1].endswith("backend transformers")
    _, line = judge_identity(two, tmp_path / "run", 5)
    assert "NOT the one this run had before: learned digest aaaaaaaaaaaa" in line
    assert judge_identity(Describes(), tmp_path / "new", 5)[1] == "judge: learned"


def test_counts_of_a_step():
    found = judge_counts({"judged": 12, "several": 4, "first_yes": 3, "controls": 0, "false_yes": 0, "absurd": 1})
    assert (found["judge_calls"], found["judge_first_yes"], found["judge_absurd"]) == (12, 0.75, 1)
    assert found["judge_failures"] == found["judge_overlong"] == 0 and "judge_false_yes" not in found
    assert check(found)[0]["judge/first_yes"] == 0.75


class SaysNo:
    def probabilities(self, items):
        return [0.0] * len(items)


def test_a_warning_stands_beside_the_step_and_in_the_metrics(tmp_path):
    fakes = Fakes(tmp_path, "judge.on_absurd=warn", "judge.max_miss_rate=0.01")

    async def collect():
        collector = fakes.controller.collector
        collector.judge = RemoteJudge(Remote(JudgeActor(fakes.cfg.judge, SaysNo())))
        return [await collector.collect(step) for step in range(15)]  # four right traces each

    steps = asyncio.run(collect())
    notes = [note for step in steps for note in step.notes]
    assert len(notes) == 1 and "judge.max_miss_rate (0.01)" in notes[0]
    first = next(i for i, step in enumerate(steps) if step.notes)
    assert all(step.metrics["judge_absurd"] > 0 for step in steps[first:])
    assert all(step.metrics["judge_absurd"] == 0 for step in steps[:first])


def test_a_judge_whose_process_is_gone_ends_the_run():
    class Gone:
        async def find_prefixes(self, requests):
            raise RayActorError()

    judge = RemoteJudge(Remote(Gone()))
    with pytest.raises(JudgeFailure, match="the judge's process is gone"):
        asyncio.run(judge.find_prefixes([PrefixRequest("a", "p", "g", [(0, 1)], ["x"])]))
    assert asyncio.run(judge.find_prefixes([])) == []
