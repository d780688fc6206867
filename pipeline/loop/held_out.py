"""Lets a run's engines answer held-out problems before the first step and after the last, for the report.

The engines are up and idle at both times, so this costs a part of a step and no second model in memory.
"""

import hashlib
import json
from pathlib import Path

from pipeline.config import RunConfig
from pipeline.config.paths import portable
from pipeline.engine import GenerateRequest
from pipeline.evaluation import score_traces
from pipeline.loop.assemble import load_split
from pipeline.loop.before_after import answered
from pipeline.loop.collect import Collector
from pipeline.loop.examples import alternating, view
from pipeline.loop.report_files import Measured, keep_measured, kept_measured
from pipeline.loop.scoring import ScoredGroup
from pipeline.problems import Problem, sample_seed

VIEWS = 16  # problems whose replies are kept to be read


async def measure_held_out(collector: Collector, folder: Path, name: str, version: int) -> Measured | None:
    """Answers by `version`, the weights that the engines hold, kept in the run's `folder` as `name` (before, after).

    What was asked in the same way before (an earlier part of the run) is not asked again. None where there are no
    held-out problems, or run.report_problems is 0.
    """
    asked = identity(collector.cfg)
    kept = kept_measured(folder, name)
    if kept and (kept.asked, kept.version) == (asked, version):
        return kept
    problems = chosen(collector)
    if not problems:
        return None
    measured = await _measured(collector, problems, asked, version)
    keep_measured(folder, name, measured)
    return measured


def identity(cfg: RunConfig) -> str:
    """A digest of all that decides which problems are asked and how replies are sampled, graded and judged."""
    parts = portable(cfg.model_dump(mode="json", exclude={"problems": {"train"}}))
    wanted = {name: parts[name] for name in ("problems", "evaluation", "model", "judge", "grading")}
    wanted["run"] = [parts["run"]["seed"], parts["run"]["report_problems"], parts["rollout"]["max_new_tokens"]]
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def chosen(collector: Collector) -> list[Problem]:
    """The first run.report_problems held-out problems that fit the engines, in turns from each source."""
    cfg, prompts = collector.cfg, collector.prompts
    if not (cfg.run.report_problems and cfg.problems.held_out):
        return []
    problems = alternating(load_split(cfg, "held_out"), key=lambda problem: problem.source)
    fitting = (problem for problem in problems if len(prompts.ids(problem)) <= prompts.max_tokens)
    return [problem for _, problem in zip(range(cfg.run.report_problems), fitting, strict=False)]


async def _measured(collector: Collector, problems: list[Problem], asked: str, version: int) -> Measured:
    tokenizer, by_id = collector.prompts.tokenizer, {problem.id: problem for problem in problems}
    groups = await collector.pool.generate([_request(collector, problem) for problem in problems])
    traces = [trace for group in groups for trace in group.traces]
    deadline = collector.cfg.judge.deadline_s + collector.cfg.grading.deadline_s * len(traces)
    scoring = score_traces(traces, by_id, tokenizer, collector.marks, collector.judge)
    scored = await collector.waits.within("the grader and the judge", deadline, scoring)
    await collector.judge_metrics()  # these calls belong to no step
    first = {trace.trace.problem_id: trace for trace in reversed(scored)}
    views = [view(ScoredGroup(problem.id, problem, ()), first[problem.id], tokenizer) for problem in problems[:VIEWS]]
    return Measured(asked, version, answered(scored, by_id), views)


def _request(collector: Collector, problem: Problem) -> GenerateRequest:
    cfg = collector.cfg
    return GenerateRequest(
        issue_id=f"held-out/{problem.id}",
        problem_id=problem.id,
        prompt_ids=tuple(collector.prompts.ids(problem)),
        n=cfg.evaluation.samples,
        seed=sample_seed(problem.id, 0, cfg.run.seed),
        temperature=cfg.evaluation.temperature,
        top_p=cfg.evaluation.top_p,
        max_new_tokens=cfg.rollout.max_new_tokens,
    )
