"""An evaluation engine on Ray, with a stand-in for vLLM: single samples, deadlines, and mistakes told as such."""

import asyncio
import shutil

import pytest

from pipeline.config import ROOT, UserError, load_config
from pipeline.loop import evaluate
from pipeline.loop.evaluate import EvaluationEngine
from pipeline.loop.remote import RunFailed, get
from pipeline.problems import load_problems, sample_seed
from pipeline.problems.tiny_tokenizer import build_tokenizer
from pipeline.traces import Group, Stop, Trace, VersionSpan

pytestmark = pytest.mark.slow
TOKENIZER = build_tokenizer()
OPTIONS = ["problems.held_out.0.size=30", "evaluation.samples=3", "engine.device=cpu", "engine.max_num_seqs=20"]


class StandIn:
    """Answers each request with its seed as the one token; behaves by the folder's name."""

    def __init__(self, name):
        self.folder, self.started = "", None

    async def start(self, folder, options, version=0, digest="", deadline_s=300):
        self.folder, self.started = folder, (version, digest)
        if "bad" in folder:
            raise UserError(f"the engine cannot run {folder} with these options: too long")
        if "slow" in folder:
            await asyncio.sleep(60)

    async def generate(self, requests, deadline_s=None):
        if "silent" in self.folder:
            await asyncio.sleep(60)
        if "broken" in self.folder:
            raise UserError("issue 'x': the prompt is empty; give at least one token id")
        return [Group(r.issue_id, r.problem_id, tuple(self._trace(r, i) for i in range(r.n))) for r in requests]

    def _trace(self, request, sample):
        assert request.n == 1 or sample < request.n
        ids = (request.seed + sample,)
        return Trace(request.problem_id, sample, (1,), ids, (0.0,), (VersionSpan(0, 0, 1),), Stop.EOS, "")


@pytest.fixture
def engine(local_ray, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluate, "RolloutActor", StandIn)

    def start(name="model", *overrides):
        shutil.copytree(ROOT / "infra/models/tiny", tmp_path / name, dirs_exist_ok=True)
        cfg = load_config(None, [*OPTIONS, *overrides])
        return cfg, EvaluationEngine(cfg, str(tmp_path / name), version=4, digest="abc")

    return start


def wanted(cfg):
    return [(p, s) for p in load_problems(cfg.problems.held_out, 0) for s in range(cfg.evaluation.samples)]


def test_single_samples_are_those_of_the_whole_whatever_else_is_asked(engine):
    cfg, started = engine()
    with started:
        pairs = wanted(cfg)
        lists = list(started.replies(cfg, TOKENIZER, pairs))
        found = {(t.problem_id, t.sample): t.token_ids for part in lists for t in part}
        assert len(lists) > 10 and len(found) == 90
        assert found == {(p.id, s): (sample_seed(p.id, 0, 0) + s,) for p, s in pairs}
        part = {(t.problem_id, t.sample): t.token_ids for c in started.replies(cfg, TOKENIZER, pairs[5:9]) for t in c}
        assert part == {(p.id, s): found[p.id, s] for p, s in pairs[5:9]}
        whole = started.sample(cfg, TOKENIZER, load_problems(cfg.problems.held_out, 0), lambda count: None)
        assert {(t.problem_id, t.sample): t.token_ids for t in whole} == found
        assert list(started.replies(cfg, TOKENIZER, [])) == []


def test_mistakes_and_deadlines(engine):
    with pytest.raises(UserError, match="the engine cannot run .*bad.* too long"):
        engine("bad")
    with pytest.raises(RunFailed, match="waited 1 s for the evaluation engine to start with"):
        engine("slow", "loop.start_deadline_s=1")
    cfg, started = engine("silent", "rollout.deadline_s=1")
    with started, pytest.raises(RunFailed, match="waited 1 s for the evaluation engine's next reply"):
        list(started.replies(cfg, TOKENIZER, wanted(cfg)))
    cfg, started = engine("broken")
    with started, pytest.raises(UserError, match="the prompt is empty"):
        list(started.replies(cfg, TOKENIZER, wanted(cfg)))
    cfg, started = engine("model", "engine.max_model_len=330")
    with (
        started,
        pytest.raises(UserError, match=r"the longest prompt has \d+ tokens and a response up to 320; set eng"),
    ):
        list(started.replies(cfg, TOKENIZER, wanted(cfg)))


def test_a_value_and_a_death(local_ray):
    @local_ray.remote
    def double(value):
        return 2 * value

    assert get(double.remote(4), 60, "a task") == 8
    with pytest.raises(local_ray.exceptions.RayTaskError):
        get(double.remote({}), 60, "a task")
