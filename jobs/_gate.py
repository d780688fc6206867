"""Measures registered versions on the frozen problems, each on an engine of its own and each only once."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from jobs._measure import Scorer
from pipeline.config import RunConfig, results_root
from pipeline.evaluation.samples import SampleLedger
from pipeline.evaluation.tally import Measurement, tally
from pipeline.loop.frozen import asked_as, asked_digest, frozen_problems
from pipeline.problems import Problem
from pipeline.weights.reference import reference_of
from serve.policy import Policy
from serve.promotion.check import Decision
from serve.promotion.decision import decide, limits_of
from serve.promotion.kept import Kept, copy_name

Show = Callable[[str], object]


def kept_measurements(cfg: RunConfig) -> Kept:
    """Where measurements are kept: beside the runs."""
    return Kept(results_root(cfg) / "gate")


@dataclass
class Gate:
    """The frozen problems, how they are asked, and what is known of each version. `cfg` has the gate's sampling."""

    cfg: RunConfig
    problems: list[Problem]
    tokenizer: Any
    asked: str
    kept: Kept

    @classmethod
    def open(cls, cfg: RunConfig, folder: str) -> "Gate":
        """With the tokenizer of the model in `folder`, which champion and candidate share."""
        from pipeline.loop.assemble import load_tokenizer

        tokenizer = load_tokenizer(folder)
        problems = frozen_problems(cfg, tokenizer)
        return cls(asked_as(cfg), problems, tokenizer, asked_digest(cfg, problems), kept_measurements(cfg))

    def decide(self, candidate: Policy, champion: Policy | None, show: Show) -> Decision:
        """The decision on `candidate`. What is known already is not measured again."""
        wanted = [policy for policy in (champion, candidate) if policy is not None]
        lacking = [policy for policy in wanted if self.kept.get(policy.digest, self.asked) is None]
        with ExitStack() as stack:
            if lacking:
                from jobs._ray import cluster

                show("starting a Ray of this command's own to measure on")
                stack.enter_context(cluster(namespace="gate"))
            for policy in lacking:
                show(f"measuring {policy.fingerprint} on {len(self.problems)} frozen problems")
                self.kept.put(self._measured(policy))
        ours, theirs = (policy and self.kept.get(policy.digest, self.asked) for policy in (candidate, champion))
        assert ours is not None  # it was kept just now, or before
        return decide(ours, theirs, limits_of(self.cfg), first=champion is None)

    def _measured(self, policy: Policy) -> Measurement:
        """An interrupted measurement goes on with the samples it has."""
        from pipeline.loop.evaluate import EvaluationEngine

        cfg = self.cfg
        name = f"{copy_name(policy.version, policy.digest)}-{self.asked[:12]}.jsonl"
        self.kept.folder.mkdir(parents=True, exist_ok=True)
        ledger = SampleLedger(self.kept.folder / name)
        ledger.begin({"digest": policy.digest, "version": policy.version, "asked": self.asked})
        every = [(problem, sample) for problem in self.problems for sample in range(cfg.evaluation.samples)]
        wanted = [pair for pair in every if (pair[0].id, pair[1]) not in ledger.samples]
        scorer = Scorer(cfg, self.tokenizer, self.problems)
        reference = reference_of(policy.folder)
        with EvaluationEngine(cfg, policy.folder, version=policy.version, digest=policy.digest) as engine:
            parity = reference.distance(engine.fingerprint(reference.token_ids))
            seconds = _sample(engine, cfg, self.tokenizer, wanted, scorer, ledger)
        scored = [ledger.samples[problem.id, sample] for problem, sample in every]
        return Measurement(policy.version, policy.digest, self.asked, tally(scored), parity, seconds)


def _sample(
    engine: Any,
    cfg: RunConfig,
    tokenizer: Any,
    wanted: Sequence[tuple[Problem, int]],
    scorer: Scorer,
    ledger: SampleLedger,
) -> float | None:
    """Keeps what is wanted; seconds a reply, grading included, None where nothing was wanted."""
    begun = time.monotonic()
    with asyncio.Runner() as runner:
        for traces in engine.replies(cfg, tokenizer, wanted):
            ledger.add(runner.run(scorer.score(traces)))
    return (time.monotonic() - begun) / len(wanted) if wanted else None
