"""Example traces of a step, for people: a page of its own, and kept for the run's report."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pipeline.evaluation import ScoredTrace
from pipeline.loop.collect import Collected
from pipeline.loop.scoring import ScoredGroup
from pipeline.rewards import Outcome
from pipeline.tracking import TraceView, token_views, trace_report_html

GROUPS, TRACES = 6, 3
VERDICTS = {True: "right", False: "wrong", None: "unknown"}
T = TypeVar("T")


def alternating(items: Iterable[T], key: Callable[[T], str]) -> list[T]:
    """The items in turns: the first of each key, then the second of each, so that a few hold every kind."""
    turns: dict[str, int] = {}
    ordered = []
    for place, item in enumerate(items):
        turns[key(item)] = turns.get(key(item), -1) + 1
        ordered.append((turns[key(item)], place, item))
    return [item for _, _, item in sorted(ordered, key=lambda entry: entry[:2])]


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


def step_views(collected: Collected, tokenizer: Any) -> list[TraceView]:
    """A few traces of a few groups of the batch, every source among them, with reward and advantage of each token."""
    blocks = zip(collected.groups, collected.rewards, collected.advantages, strict=True)
    chosen = alternating(blocks, key=lambda block: block[0].problem.source)[:GROUPS]
    return [
        view(group, scored, tokenizer, (rewards[row], advantages[row]))
        for group, rewards, advantages in chosen
        for row, scored in enumerate(group.traces[:TRACES])
    ]


def trace_page(views: Sequence[TraceView], step: int) -> str:
    """HTML of a step's example traces: necessary, redundant and answer tokens, reward and advantage of each."""
    return trace_report_html(views, title=f"Traces of step {step + 1}")
