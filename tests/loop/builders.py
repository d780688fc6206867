"""Hand-made traces and groups, and stand-ins for the actors of a run."""

import asyncio
import json
import random
import uuid

from pipeline.config import load_config
from pipeline.config.schema import Judge
from pipeline.engine import SwapReceipt
from pipeline.evaluation import ScoredTrace
from pipeline.judge import JudgeActor
from pipeline.loop.controller import Controller
from pipeline.loop.scoring import ScoredGroup
from pipeline.problems import Problem, load_problems
from pipeline.problems.tiny_lessons import Overthinking, demonstrate
from pipeline.problems.tiny_tokenizer import build_tokenizer, save_tokenizer
from pipeline.traces import Group, Stop, Trace, VersionSpan
from pipeline.tracking import check


def trace(length=6, *, problem="p", version=0, stop=Stop.EOS, prompt=3, first=10):
    spans = version if isinstance(version, tuple) else (VersionSpan(version, 0, length),)
    ids = tuple(range(first, first + length))
    return Trace(problem, 0, tuple(range(prompt)), ids, tuple(-0.1 * i for i in range(length)), spans, stop, "")


def scored(correct, length=6, *, think=4, prefix=None, segments=((0, 2), (2, 4)), **options):
    return ScoredTrace(trace(length, **options), segments, think, min(think + 1, length), 1, correct, prefix)


def group(*traces, issue="0/p", problem="p"):
    return ScoredGroup(issue, Problem(problem, "What is 1 + 1?", "2", "tiny/chain_sum"), tuple(traces))


class _Method:
    def __init__(self, function):
        self.function = function

    def remote(self, *arguments, **options):
        return asyncio.ensure_future(self.function(*arguments, **options))


class Remote:
    """An object behind a handle, as Ray gives one: `handle.method.remote(...)` is awaitable."""

    def __init__(self, behind):
        self._behind = behind

    def __getattr__(self, name):
        return _Method(getattr(self._behind, name))


TOKENIZER = build_tokenizer()


class FakeEngine:
    """Answers with demonstrations; `verdicts(request)` says which of a group are right. Remembers what it was asked."""

    def __init__(self, problems, verdicts):
        self.problems, self.verdicts = {p.id: p for p in problems}, verdicts
        self.version, self.digest, self.asked, self.swaps = 0, "", [], []

    async def start(self, model_dir, options):
        return f"{model_dir} on {options.device}"

    async def generate(self, requests):
        self.asked += requests
        await asyncio.sleep(0)
        return [self._group(request) for request in requests]

    def _group(self, request):
        problem, rng = self.problems[request.problem_id], random.Random(request.seed)
        right = self.verdicts(request)
        assert len(right) == request.n
        traces = tuple(self._trace(request, problem, i, ok, rng) for i, ok in enumerate(right))
        return Group(request.issue_id, request.problem_id, traces)

    def _trace(self, request, problem, sample, ok, rng):
        text = demonstrate(problem, Overthinking(slip=0, checks=(1, 2)), rng)
        text = text if ok else text.split("</think>")[0] + "</think>\nThe answer is \\boxed{99}."
        ids = tuple(TOKENIZER.encode(text + "<eos>", add_special_tokens=False))
        assert len(ids) <= request.max_new_tokens
        spans = (VersionSpan(self.version, 0, len(ids)),)
        return Trace(problem.id, sample, request.prompt_ids, ids, (-0.5,) * len(ids), spans, Stop.EOS, text)

    async def swap(self, folder, version, digest, mode, verified):
        self.version, self.digest = version, digest
        self.swaps.append(version)
        return SwapReceipt(version, digest, 0.01, 0.0, 1)


class FakeTracker:
    """Takes what the real one would take: names and values are checked against the catalogue."""

    def __init__(self):
        self.steps, self.files = [], {}

    async def log_step(self, step, numbers):
        self.steps.append((step, check(numbers)[0]))

    async def log_text(self, text, name):
        self.files[name] = text


class FakePublisher:
    def __init__(self):
        self.published = []

    async def publish(self, folder, version, digest, step):
        self.published.append((version, digest, step))


class Fakes:
    """A controller among fakes; the judge is the real one, in this process."""

    def __init__(self, folder, *overrides, verdicts=None):
        self.folder = folder
        self.cfg = load_config(None, [f"model.path={model_folder(folder)}", *SMALL, *overrides])
        problems = load_problems(self.cfg.problems.train, self.cfg.run.seed)
        right = verdicts or (lambda request: [i == 0 for i in range(request.n)])
        self.engines = [FakeEngine(problems, right) for _ in range(self.cfg.rollout.engines)]
        self.tracker, self.publisher = FakeTracker(), FakePublisher()
        self.controller = self.new_controller()

    def new_controller(self):
        engines = [Remote(engine) for engine in self.engines]
        actors = Remote(JudgeActor(Judge())), Remote(self.tracker), Remote(self.publisher)
        return Controller(self.cfg.model_dump(mode="json"), str(self.folder / "run"), engines, *actors)

    @property
    def asked(self):
        """Issue ids that engines were asked for."""
        return [request.issue_id for engine in self.engines for request in engine.asked]


SMALL = [
    "run.steps=3",
    "problems.train.0.size=24",
    "problems.train.0.options={max_terms: 3}",
    "problems.held_out=[]",
    "rollout.prompts_per_step=4",
    "rollout.group_size=2",
    "engine.device=cpu",
    "publish.every=2",
]


def model_folder(folder):
    """A folder with the tiny tokenizer and no weights."""
    model = folder / "model"
    if not model.exists():
        save_tokenizer(model)
        (model / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(TOKENIZER)}))
    return model


class Ranks:
    """Plays the learner's ranks: pulls batches, reports steps, publishes, checkpoints."""

    def __init__(self, fakes, controller=None, checkpoint_every=100):
        self.fakes, self.controller = fakes, controller or fakes.controller
        self.every, self.state, self.batches, self.parity = checkpoint_every, None, {}, 0.0
        self.saved = None

    async def start(self, first=0, state=None):
        self.attempt = await self.controller.begin_attempt(uuid.uuid4().hex)
        await self.controller.restore(self.attempt, state)
        await self.publish(first - 1)

    async def publish(self, step):
        snapshot = self.fakes.folder / "run" / "snapshots" / f"v{step + 1}"
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / "weights").write_text(str(step))
        await self.controller.publish(self.attempt, step, step + 1, str(snapshot), f"digest{step + 1}")

    async def pull(self, step):
        ranks = range(self.fakes.cfg.learner.ranks)
        return await asyncio.gather(*(self.controller.next_batch(self.attempt, step, rank) for rank in ranks))

    async def step(self, step):
        """One whole step; False when the ranks were told to stop."""
        got = await self.pull(step)
        if None in got:
            assert got == [None] * len(got)
            return False
        self.batches.setdefault(step, []).append(got)
        for rank in reversed(range(len(got))):
            await self.controller.step_done(self.attempt, step, rank, {"parity_mean": self.parity, "loss": 0.5})
        await self.publish(step)
        if (step + 1) % self.every == 0:
            self.saved = json.loads(json.dumps(await self.controller.state(self.attempt, step)))
            await self.controller.checkpointed(self.attempt, step, {})
        return True

    async def run(self, first=0, state=None):
        """From `first` to the end; the number of steps made."""
        await self.start(first, state)
        step = first
        while await self.step(step):
            step += 1
        return step - first


def digests(batches):
    """Of the ranks' batches of one step."""
    return [batch.digest for batch in batches]


def play(scene, folder, *overrides, **options):
    """Runs `await scene(fakes, ranks)` to its end and returns what it returns."""

    async def whole():
        fakes = Fakes(folder, *overrides, **options)
        return await scene(fakes, Ranks(fakes))

    return asyncio.run(whole())
