"""One step's batch: issue problems, sample, score, sort into kept and dropped, reward."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config import RunConfig, UserError
from pipeline.curriculum import BatchFiller, Filled, Rule, classify
from pipeline.engine import GenerateRequest
from pipeline.evaluation import ScoredTrace, grade_traces, with_prefixes
from pipeline.learner import TokenStreams
from pipeline.loop.issuing import Issuer
from pipeline.loop.ledger import Ledger, State
from pipeline.loop.pool import RolloutPool
from pipeline.loop.scoring import ScoredGroup, Signals, to_streams, token_signals
from pipeline.loop.steering import Issue, Tag, make_issue, merge, requests_of
from pipeline.loop.step_metrics import (
    Numbers,
    curriculum_metrics,
    judge_counts,
    rollout_metrics,
    segment_ratio,
    signal_metrics,
    version_metrics,
)
from pipeline.loop.waiting import Waits
from pipeline.problems import Problem, sample_seed, with_suffix
from pipeline.rewards import UNSTEERED, RewardStrategy, Steering, steering
from pipeline.traces import Group, Marks

OVERSAMPLE = 1.25  # a further round asks for a little more than is missing, since some groups will be dropped


@dataclass(frozen=True)
class Collected:
    """A batch on its way to the learner, and what is known of it."""

    step: int
    streams: TokenStreams
    groups: tuple[ScoredGroup, ...]
    rewards: tuple[Signals, ...]
    advantages: tuple[Signals, ...]
    metrics: Numbers
    nrp_ratio: float | None
    easy_share: float
    notes: tuple[str, ...] = ()  # for people, beside the step's line


class Prompts:
    """Problems as token ids, through the model's chat template."""

    def __init__(self, tokenizer: Any, suffix: str, max_tokens: int) -> None:
        self.tokenizer, self.suffix, self.max_tokens = tokenizer, suffix, max_tokens

    def ids(self, problem: Problem, note: str = "") -> list[int]:
        """Token ids [P] of one problem, with a strategy's note below it if any, ready for the model to think."""
        messages = [{"role": "user", "content": with_suffix(with_suffix(problem.prompt, self.suffix), note)}]
        rendered = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer.encode(rendered, add_special_tokens=False))

    def fitting(
        self, problems: Sequence[Problem], starts: Callable[[Problem], Sequence[Steering]] = lambda _: (UNSTEERED,)
    ) -> list[Problem]:
        """Problems whose prompt, with every note that `starts` gives it, leaves room for a response; UserError when
        none does."""

        def fits(problem: Problem) -> bool:
            return all(len(self.ids(problem, note)) <= self.max_tokens for note in {s.note for s in starts(problem)})

        kept = [problem for problem in problems if fits(problem)]
        if not kept:
            raise UserError(
                f"no training prompt fits into {self.max_tokens} tokens (engine.max_model_len less "
                "rollout.max_new_tokens); raise the first or lower the second"
            )
        return kept


class Collector:
    """Makes the batches of one run. Holds the issuer, the ledger and the curriculum's rule: all that a resume needs."""

    def __init__(
        self,
        cfg: RunConfig,
        issuer: Issuer,
        prompts: Prompts,
        marks: Marks,
        strategy: RewardStrategy,
        rule: Rule,
        pool: RolloutPool,
        judge: Any,
        waits: Waits,
    ) -> None:
        self.cfg, self.issuer, self.prompts, self.marks = cfg, issuer, prompts, marks
        self.strategy, self.rule, self.pool, self.judge, self.waits = strategy, rule, pool, judge, waits
        self.ledger = Ledger()
        self._judge_counts: Counter[str] = Counter()

    async def collect(self, step: int) -> Collected:
        """Samples until the batch is full. BatchNotFilled (a UserError) after curriculum.max_rounds."""
        wanted = self.cfg.rollout.prompts_per_step
        filler: BatchFiller[ScoredGroup] = BatchFiller(
            wanted, self.rule.kappa, self.cfg.curriculum.max_rounds, self.cfg.curriculum.min_batch_share
        )
        sampled: list[ScoredGroup] = []
        seconds: dict[str, float] = {"rollout": 0.0, "grade": 0.0, "judge": 0.0}
        while not filler.done:
            count = wanted if not filler.rounds else math.ceil(OVERSAMPLE * filler.missing)
            groups = await self._round(count, seconds)
            filler.add((group, classify(group.verdicts)) for group in groups)
            sampled += groups
        batch = filler.result()
        for group, reason in batch.dropped:
            self.ledger.move(group.issue_id, State.DROPPED, reason.value)
        collected = self._rewarded(step, batch, sampled, filler.easy_share, seconds)
        collected.metrics.update(await self.judge_metrics())
        return replace(collected, notes=tuple(await self.judge.warnings()) if self._judges else ())

    @property
    def _judges(self) -> bool:
        """Whether reward or curriculum read the necessary prefix."""
        return self.strategy.needs_prefix or self.rule.needs_ratio

    async def judge_metrics(self) -> Numbers:
        """The judge's counts since the last step."""
        now = Counter(await self.judge.counters()) if self._judges else Counter()
        new, self._judge_counts = now - self._judge_counts, now
        return judge_counts(new)

    def trained(self, collected: Collected) -> None:
        """Notes the batch as trained and lets the curriculum move."""
        for group in collected.groups:
            self.ledger.move(group.issue_id, State.TRAINED, str(collected.step))
        self.rule.update(collected.nrp_ratio, collected.easy_share)

    async def _round(self, count: int, seconds: dict[str, float]) -> list[ScoredGroup]:
        drawn = self.issuer.draw(count)
        problems = {self.ledger.issue(problem.id, epoch): (problem, epoch) for problem, epoch in drawn}
        started = time.monotonic()
        issues = {key: self._issue(key, *pair) for key, pair in problems.items()}
        answered = {group.issue_id: group for group in await self.pool.generate(requests_of([*issues.values()]))}
        groups = [merge(issue, answered) for issue in issues.values()]
        seconds["rollout"] += time.monotonic() - started
        scored = await self._score(groups, {p.id: p for p, _ in problems.values()}, seconds)
        scored = [replace(group, starts=issues[group.issue_id].starts) for group in scored]
        for group in scored:
            self.ledger.move(group.issue_id, State.SCORED)
        return scored

    def _issue(self, issue_id: str, problem: Problem, epoch: int) -> Issue:
        starts = starts_of(self.strategy, problem, self.cfg)
        prompts = {note: tuple(self.prompts.ids(problem, note)) for note in {start.note for start in starts}}
        plain = self._request(issue_id, problem, epoch, prompts[starts[0].note])
        return make_issue(plain, starts, prompts, Tag.of(self.marks))

    def _request(self, issue_id: str, problem: Problem, epoch: int, prompt_ids: tuple[int, ...]) -> GenerateRequest:
        rollout = self.cfg.rollout
        return GenerateRequest(
            issue_id=issue_id,
            problem_id=problem.id,
            prompt_ids=prompt_ids,
            n=rollout.group_size,
            seed=sample_seed(problem.id, epoch, self.cfg.run.seed),
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            max_new_tokens=rollout.max_new_tokens,
        )

    async def _score(
        self, groups: Sequence[Group], problems: Mapping[str, Problem], seconds: dict[str, float]
    ) -> list[ScoredGroup]:
        traces = [trace for group in groups for trace in group.traces]
        started = time.monotonic()
        tokenizer = self.prompts.tokenizer
        with self.waits.note("the grader"):
            graded = await asyncio.to_thread(grade_traces, traces, problems, tokenizer, self.marks)
        seconds["grade"] += time.monotonic() - started
        if not self._judges:
            return regroup(groups, graded, problems)
        started = time.monotonic()
        deadline = max(self.cfg.judge.deadline_s, self.cfg.loop.step_deadline_s)  # the first holds for each call
        judged = await self.waits.within("the judge", deadline, self._judged(graded, problems))
        seconds["judge"] += time.monotonic() - started
        return regroup(groups, judged, problems)

    async def _judged(self, graded: list[ScoredTrace], problems: Mapping[str, Problem]) -> list[ScoredTrace]:
        return await with_prefixes(graded, problems, self.prompts.tokenizer, self.judge)

    def _rewarded(
        self,
        step: int,
        batch: Filled[ScoredGroup],
        sampled: list[ScoredGroup],
        easy_share: float,
        seconds: Mapping[str, float],
    ) -> Collected:
        longest = self.cfg.rollout.max_new_tokens
        signals = [token_signals(group, self.strategy, longest) for group in batch.groups]
        rewards, advantages = tuple(r for r, _ in signals), tuple(a for _, a in signals)
        tokens = sum(trace.length for group in sampled for trace in group.traces)
        metrics = {
            **rollout_metrics(sampled),
            **curriculum_metrics(batch, self.rule.kappa, easy_share, self.rule.skipped),
            **signal_metrics(batch.groups, rewards, advantages),
            **version_metrics(batch.groups, step, self.cfg.loop.max_staleness),
            **{f"seconds_{part}": value for part, value in seconds.items()},
            "tokens_per_second": tokens / max(seconds["rollout"], 1e-9),
        }
        return Collected(
            step=step,
            streams=to_streams(batch.groups, advantages, self.strategy),
            groups=batch.groups,
            rewards=rewards,
            advantages=advantages,
            metrics=metrics,
            nrp_ratio=segment_ratio(batch.groups),
            easy_share=easy_share,
        )


def starts_of(strategy: RewardStrategy, problem: Problem, cfg: RunConfig) -> tuple[Steering, ...]:
    """How the samples of a problem begin: the same in every epoch, and again after a resume."""
    rollout = cfg.rollout
    return steering(strategy, problem.id, rollout.group_size, cfg.run.seed, rollout.max_new_tokens)


def regroup(
    groups: Sequence[Group], scored: Sequence[ScoredTrace], problems: Mapping[str, Problem]
) -> list[ScoredGroup]:
    """Scored traces, given in the groups' order, back in their groups."""
    found, start = [], 0
    for group in groups:
        end = start + len(group.traces)
        found.append(ScoredGroup(group.issue_id, problems[group.problem_id], tuple(scored[start:end])))
        start = end
    return found
