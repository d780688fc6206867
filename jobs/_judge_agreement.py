"""The judge that a run used against the exact one, on the same traces."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config.schema import Judge
from pipeline.evaluation import ScoredTrace
from pipeline.judge import ExactJudge, JudgeItem, build_judge
from pipeline.judge.findings import agreement, first_yes, is_yes
from pipeline.problems import Problem
from pipeline.traces import segment_texts


def judge_agreement(
    config: Judge, scored: Sequence[ScoredTrace], problems: Mapping[str, Problem], tokenizer: Any
) -> dict[str, Any] | None:
    """Over all segments of right traces: how often the two judges agree and in how many traces they find the same
    prefix; what the exact judge cannot decide is left out. None where the run's judge is the exact one."""
    if config.name == "exact":
        return None
    traces = [_items(trace, problems[trace.trace.problem_id], tokenizer) for trace in scored if trace.correct]
    items = list(dict.fromkeys(item for trace in traces for item in trace))
    exact = dict(zip(items, ExactJudge().probabilities(items), strict=True))
    items = [item for item in items if exact[item] == exact[item]]
    said = dict(zip(items, build_judge(config).probabilities(items), strict=True))
    labels = {item: exact[item] == 1.0 for item in items}
    verdicts = {item: is_yes(said[item], config.threshold) for item in items}
    known = [trace for trace in traces if trace and all(item in labels for item in trace)]
    same = sum(first_yes([labels[i] for i in trace]) == first_yes([verdicts[i] for i in trace]) for trace in known)
    found = agreement([labels[item] for item in items], [said[item] for item in items], config.threshold)
    return {"judge": config.name, "traces": len(known), "same_prefix": same, "segments": found.to_dict()}


def agreement_line(found: Mapping[str, Any] | None) -> str | None:
    """The figures in one line, for a terminal."""
    if found is None or not found["traces"]:
        return None
    segments = found["segments"]
    return (
        f"judge: {found['judge']}; same prefix as the exact judge in {found['same_prefix']} of {found['traces']} right "
        f"traces; {segments['agreed']} of {segments['n']} different segments judged alike "
        f"({segments['false_yes']} false yes, {segments['missed_yes']} missed)"
    )


def _items(scored: ScoredTrace, problem: Problem, tokenizer: Any) -> list[JudgeItem]:
    texts = segment_texts(scored.trace.token_ids, scored.segments, tokenizer)
    return [JudgeItem(problem.prompt, problem.gold, text) for text in texts]
