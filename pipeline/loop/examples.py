"""Example traces of a step as a page people can read."""

from typing import Any

from pipeline.evaluation import ScoredTrace
from pipeline.loop.collect import Collected
from pipeline.loop.scoring import ScoredGroup
from pipeline.rewards import Outcome
from pipeline.tracking import TraceView, token_views, trace_report_html

GROUPS, TRACES = 6, 3
VERDICTS = {True: "right", False: "wrong", None: "unknown"}


def view(group: ScoredGroup, scored: ScoredTrace, tokenizer: Any, signals: tuple[Any, Any] | None = None) -> TraceView:
    """One trace for a reader; `signals` are its reward and advantage rows [>= T]."""
    ids = scored.trace.token_ids
    texts = [tokenizer.decode([token], skip_special_tokens=False) for token in ids]
    outcome = Outcome(scored.length, bool(scored.correct), scored.prefix_length, scored.think_length)
    rewards, advantages = signals if signals and scored.correct is not None else (None, None)
    versions = sorted({span.version for span in scored.trace.versions})
    return TraceView(
        problem=group.problem.prompt,
        gold=group.problem.gold,
        source=group.problem.source,
        verdict=VERDICTS[scored.correct],
        version="–".join(str(v) for v in ([versions[0], versions[-1]] if len(versions) > 1 else versions)),
        tokens=token_views(texts, outcome, rewards, advantages),
        group=group.issue_id,
        stop=scored.trace.stop.value,
    )


def trace_page(collected: Collected, tokenizer: Any) -> str:
    """HTML of a few groups of the batch: necessary, redundant and answer tokens, reward and advantage of each."""
    views = [
        view(group, scored, tokenizer, (rewards[row], advantages[row]))
        for group, rewards, advantages in list(
            zip(collected.groups, collected.rewards, collected.advantages, strict=True)
        )[:GROUPS]
        for row, scored in list(enumerate(group.traces))[:TRACES]
    ]
    return trace_report_html(views, title=f"Traces of step {collected.step + 1}")
