"""One evaluation: what is asked in which way, and the sampling that goes on from the samples already kept."""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from jobs._measure import Scorer
from pipeline.config import RunConfig, UserError, resolve_path
from pipeline.evaluation import EndpointClient
from pipeline.evaluation.model import Endpoint, LocalModel, is_endpoint
from pipeline.evaluation.samples import Identity, SampleLedger
from pipeline.evaluation.suites import Kind, Suite, check_suite_file, find_suite, load_suite, spread, suite_digest
from pipeline.preflight import check_judge
from pipeline.problems import Problem, check_sources
from pipeline.traces import Trace
from pipeline.weights import read_manifest

Done = Callable[[int], object]
CHUNK = 32  # replies of an endpoint that are graded and kept together


@dataclass(frozen=True)
class Evaluation:
    """Problems and how they are asked. `cfg` has the sampling in effect; `suite` is None for the config's own split."""

    cfg: RunConfig
    name: str
    suite: Suite | None
    problems: list[Problem]

    @property
    def kind(self) -> Kind:
        """How answers are graded."""
        return self.suite.kind if self.suite else Kind.MATH

    @property
    def wanted(self) -> list[tuple[Problem, int]]:
        """Every (problem, sample)."""
        return [(problem, sample) for problem in self.problems for sample in range(self.cfg.evaluation.samples)]

    def identity(self, model: dict[str, Any]) -> dict[str, Any]:
        """What the kept samples depend on. The number of samples is not part of it: more of them may be added."""
        cfg, options = self.cfg, self.cfg.evaluation
        scoring: dict[str, Any] = {"kind": self.kind.value, "think_end": cfg.model.think_end}
        if self.kind is Kind.CODE:
            scoring |= {"seconds": options.code_seconds, "memory_mb": options.code_memory_mb}
        else:
            scoring["judge"] = judge_identity(cfg)
        digest = suite_digest(self.problems, cfg.problems.prompt_suffix)
        return {
            "model": model,
            "suite": {"name": self.name, "problems": len(self.problems), "digest": digest},
            "sampling": {
                "temperature": options.temperature,
                "top_p": options.top_p,
                "max_new_tokens": cfg.rollout.max_new_tokens,
                "seed": cfg.run.seed,
            },
            "scoring": scoring,
        }

    def deviations(self) -> list[str]:
        """Where the sampling or the problems are not those of the suite's protocol."""
        if self.suite is None or self.suite.protocol is None:
            return []
        protocol, options = self.suite.protocol, self.cfg.evaluation
        pairs = {
            "samples": (protocol.samples, options.samples),
            "temperature": (protocol.temperature, options.temperature),
            "top_p": (protocol.top_p, options.top_p),
            "max_new_tokens": (protocol.max_new_tokens, self.cfg.rollout.max_new_tokens),
            "problems": (self.suite.problems or len(self.problems), len(self.problems)),
        }
        return [f"{name} {now} (protocol: {stated})" for name, (stated, now) in pairs.items() if stated != now]


def judge_identity(cfg: RunConfig) -> dict[str, Any]:
    """What verdicts on segments depend on; UserError where a learned judge's folder is no snapshot."""
    judge = cfg.judge
    identity: dict[str, Any] = {"name": judge.name, "threshold": judge.threshold}
    if judge.name != "exact":
        digest = judge.digest or read_manifest(resolve_path(judge.path)).digest
        identity |= {"digest": digest, "max_tokens": judge.max_tokens}
    return identity


@dataclass
class Asked:
    """How the asking went: requests of this call, those that failed (by reason)."""

    requests: int = 0
    failures: list[str] = field(default_factory=list)


def open_evaluation(cfg: RunConfig, args: argparse.Namespace) -> Evaluation:
    """The problems and the sampling in effect. UserError as `asked_for` has it, and for problems that are none."""
    cfg, suite = asked_for(cfg, args)
    from pipeline.loop.assemble import load_split  # after the checks: it brings Ray

    if suite is not None:
        problems, name = load_suite(suite, cfg, args.suite_file), suite.name
    else:
        split = args.split or "held_out"
        problems, name = load_split(cfg, split), f"problems.{split}"
    return Evaluation(cfg, name, suite, spread(problems, args.limit))


def asked_for(cfg: RunConfig, args: argparse.Namespace) -> tuple[RunConfig, Suite | None]:
    """The config with the sampling in effect, and the suite (None: the config's own split). UserError for an unknown
    suite, model or source, and for options that clash; nothing is generated, fetched or started."""
    suite = find_suite(args.suite) if args.suite else None
    cfg = sampled_as(cfg, suite, args.overrides)
    if cfg.evaluation.samples > 1 and cfg.evaluation.temperature == 0:
        raise UserError("evaluation.temperature=0 makes all samples of a problem the same; set evaluation.samples=1")
    if suite is None:
        _check_split(cfg, args)
    elif args.split:
        raise UserError(f"--split chooses from the config's problems; the suite '{suite.name}' has its own")
    else:
        check_suite_file(suite, args.suite_file)
    if suite is None or suite.kind is not Kind.CODE:
        check_judge(cfg.judge)
    if args.out and not resolve_path(args.out).parent.is_dir():
        raise UserError(f"--out {args.out}: there is no such folder; make it, or give another file")
    if not is_endpoint(args.model or cfg.model.path, args.model_id):
        _check_room(cfg)
    return cfg, suite


def _check_split(cfg: RunConfig, args: argparse.Namespace) -> None:
    if args.suite_file:
        raise UserError("--suite-file holds the rows of a benchmark; say which with --suite")
    split = args.split or "held_out"
    if not getattr(cfg.problems, split):
        raise UserError(f"the config has no problems.{split}; add a source to it, or choose a --suite")
    check_sources(getattr(cfg.problems, split))


def _check_room(cfg: RunConfig) -> None:
    longest, room = cfg.rollout.max_new_tokens, cfg.engine.max_model_len
    if longest >= room:
        raise UserError(
            f"replies of up to {longest} tokens leave no room for a prompt in engine.max_model_len ({room}); lower "
            "evaluation.max_new_tokens or raise the second"
        )


def sampled_as(cfg: RunConfig, suite: Suite | None, overrides: Sequence[str]) -> RunConfig:
    """`cfg` with the suite's protocol and prompt suffix, save for what the command line sets itself."""
    given = {text.partition("=")[0].removeprefix("evaluation.") for text in overrides}
    options = cfg.evaluation
    if suite is not None and suite.protocol is not None:
        protocol = {name: value for name, value in vars(suite.protocol).items() if name not in given}
        options = options.model_copy(update=protocol)
    longest = options.max_new_tokens or cfg.rollout.max_new_tokens
    suffix = suite.suffix if suite is not None and suite.hub else cfg.problems.prompt_suffix
    return cfg.model_copy(
        update={
            "evaluation": options.model_copy(update={"max_new_tokens": longest}),
            "rollout": cfg.rollout.model_copy(update={"max_new_tokens": longest}),
            "problems": cfg.problems.model_copy(update={"prompt_suffix": suffix}),
        }
    )


def ask_engine(
    evaluation: Evaluation, model: LocalModel, ledger: SampleLedger, scorer: Scorer, on_done: Done
) -> tuple[Identity, Asked]:
    """Samples what the ledger lacks on an engine of its own; nothing is started when it lacks nothing."""
    from jobs._ray import cluster
    from pipeline.loop.evaluate import EvaluationEngine

    cfg = evaluation.cfg
    identity = evaluation.identity({"digest": model.digest, "version": model.version, "dtype": cfg.engine.dtype})
    ledger.begin(identity)
    wanted = lacking(evaluation, ledger)
    if not wanted:
        return identity, Asked()
    verified = model.digest if model.verified else ""
    with (
        asyncio.Runner() as runner,
        cluster(namespace="evaluate"),
        EvaluationEngine(cfg, model.folder, version=model.version, digest=verified) as engine,
    ):
        for traces in engine.replies(cfg, scorer.tokenizer, wanted):
            ledger.add(runner.run(scorer.score(traces)))
            on_done(len(traces))
    return identity, Asked(len(wanted))


def ask_endpoint(
    evaluation: Evaluation, endpoint: Endpoint, ledger: SampleLedger, scorer: Scorer, on_done: Done
) -> tuple[Identity, Asked]:
    """Asks the endpoint for what the ledger lacks. Failed requests are counted and stay lacking.

    The identity names the weights by the mark of the first reply; UserError when they are not those of the kept
    samples. Replies of other weights that come later are kept with their own mark.
    """
    kept = ledger.identity["model"].get("weights") if ledger.identity else None
    if ledger.identity:
        ledger.begin(_of_endpoint(evaluation, endpoint, kept))
    wanted = lacking(evaluation, ledger)
    asked = Asked(len(wanted))
    asyncio.run(_ask_endpoint(evaluation, endpoint, ledger, scorer, wanted, asked, on_done))
    weights = ledger.identity["model"]["weights"] if ledger.identity else None
    return _of_endpoint(evaluation, endpoint, weights), asked


def _of_endpoint(evaluation: Evaluation, endpoint: Endpoint, weights: str | None) -> dict[str, Any]:
    return evaluation.identity({"endpoint_model": endpoint.model_id, "weights": weights})


async def _ask_endpoint(
    evaluation: Evaluation,
    endpoint: Endpoint,
    ledger: SampleLedger,
    scorer: Scorer,
    wanted: Sequence[tuple[Problem, int]],
    asked: Asked,
    on_done: Done,
) -> None:
    cfg, begun, pending = evaluation.cfg, False, []
    suffix, longest = cfg.problems.prompt_suffix, cfg.rollout.max_new_tokens
    client = EndpointClient(endpoint.url, endpoint.model_id, cfg.evaluation, longest, suffix)
    try:
        async with aclosing(client.replies(wanted, cfg.run.seed)) as replies:
            async for reply in replies:
                on_done(1)
                if isinstance(reply, str):
                    asked.failures.append(reply)
                    continue
                if not begun:
                    ledger.begin(_of_endpoint(evaluation, endpoint, reply[1]))
                    begun = True
                pending.append(reply)
                if len(pending) >= CHUNK:
                    await _keep(ledger, scorer, pending)
                    pending = []
        await _keep(ledger, scorer, pending)
    finally:
        await client.close()


async def _keep(ledger: SampleLedger, scorer: Scorer, replies: Sequence[tuple[Trace, str]]) -> None:
    scored = await scorer.score([trace for trace, _ in replies])
    for mark in dict.fromkeys(mark for _, mark in replies):
        ledger.add([sample for sample, (_, own) in zip(scored, replies, strict=True) if own == mark], mark)


def lacking(evaluation: Evaluation, ledger: SampleLedger) -> list[tuple[Problem, int]]:
    """The wanted pairs that the ledger does not hold."""
    return [(problem, sample) for problem, sample in evaluation.wanted if (problem.id, sample) not in ledger.samples]
