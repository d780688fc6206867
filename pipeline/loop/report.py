"""The report of a run: gathers what the run kept and logged, and writes the page."""

from pathlib import Path

from pipeline.config import RunConfig
from pipeline.loop.before_after import batch_change, compare
from pipeline.loop.examples import TRACES, alternating
from pipeline.loop.report_files import Measured, kept_measured, kept_steps, kept_views
from pipeline.tracking import TraceView
from pipeline.tracking.catalogue import SHORT
from pipeline.tracking.run_report import MOST_PAIRS, MOST_TRACES, run_report_html
from pipeline.tracking.run_report_data import BeforeAfter, FigureName, History, Pair, RunReport
from pipeline.tracking.trace_view import Part

PAGE = "report.html"
MOST_STEPS = 6  # whose traces are shown
TRACES_FROM = (
    "Replies sampled for training, from the start of the run to its end, with the reward and the advantage that each "
    "token got. A wrong reply earns nothing; a reply without a verdict is left out of the loss."
)
CHOICE = (
    "Of the problems that were right both times, those that had the most thinking after the answer, in turns from each "
    "source; and, where there is one, a problem that was right before and is wrong now."
)
HELD_OUT = {
    FigureName.ACCURACY: "eval_accuracy",
    FigureName.TOKENS: "eval_tokens_mean",
    FigureName.NRP_SHARE: "eval_nrp_share",
    FigureName.TOKENS_PER_CORRECT: "eval_tokens_per_correct",
}


def write_report(
    cfg: RunConfig, folder: Path, history: History, change: BeforeAfter | None = None, pairs: list[Pair] | None = None
) -> str:
    """Writes report.html to the run's folder and returns the page.

    `change` and `pairs` are what was measured from outside (an endpoint). Without them the page has what the run
    itself measured on held-out problems, else its first and its last batch; it says which.
    """
    before, after = kept_measured(folder, "before"), kept_measured(folder, "after")
    change = change or _measured_change(cfg, before, after)
    pairs, pairs_from = (pairs, CHOICE) if pairs is not None else _own_pairs(before, after, kept_steps(folder))
    report = RunReport(
        name=str(cfg.run.name),
        facts=_facts(cfg, history),
        change=change or batch_change(history),
        history=_with_ends(history, change),
        published=sorted(int(path.name[1:]) for path in (folder / "published").glob("v*")),
        traces=_sampled(kept_steps(folder)),
        traces_from=TRACES_FROM,
        pairs=chosen_pairs(pairs),
        pairs_from=pairs_from,
    )
    page = run_report_html(report)
    (folder / PAGE).write_text(page, encoding="utf-8")
    return page


def _measured_change(cfg: RunConfig, before: Measured | None, after: Measured | None) -> BeforeAfter | None:
    if before is None or after is None or before.asked != after.asked:
        return None
    evaluation, count = cfg.evaluation, len(before.answers.keys() & after.answers.keys())
    where = (
        f"Measured by the run's own engines before the first step and after the last: {count} held-out problems, "
        f"{evaluation.samples} {'reply' if evaluation.samples == 1 else 'replies'} each at temperature "
        f"{evaluation.temperature:g}. Small numbers are 95 % bootstrap intervals over problems."
    )
    return compare(before.answers, after.answers, (str(before.version), str(after.version)), where)


def _own_pairs(before: Measured | None, after: Measured | None, steps: list[Path]) -> tuple[list[Pair], str]:
    """Pairs of held-out replies; without those, of the first and the last step that kept traces."""
    if before and after:
        return _matched(before.views, after.views), f"Held-out problems, one reply each. {CHOICE}"
    if len(steps) < 2:
        return [], "No problem was answered both before and after training."
    pairs = _matched(kept_views(steps[0]), kept_views(steps[-1]))
    return pairs, "Training problems that were sampled both in the first and in the last batch, where there are any."


def _matched(before: list[TraceView], after: list[TraceView]) -> list[Pair]:
    later = {(view.source, view.problem): view for view in reversed(after)}
    earlier = {(view.source, view.problem): view for view in reversed(before)}
    return [(view, later[key]) for key, view in reversed(earlier.items()) if key in later]


def chosen_pairs(pairs: list[Pair]) -> list[Pair]:
    """The pairs that `CHOICE` describes, at most MOST_PAIRS."""
    right = [pair for pair in pairs if pair[0].verdict == "right"]
    lost = [pair for pair in right if pair[1].verdict == "wrong"][:1]
    kept = sorted((p for p in right if p[1].verdict == "right"), key=lambda pair: -pair[0].count(Part.REDUNDANT))
    return [*alternating(kept, key=lambda pair: pair[0].source)[: MOST_PAIRS - len(lost)], *lost]


def _sampled(steps: list[Path]) -> list[TraceView]:
    """Traces of at most MOST_STEPS steps, the first and the last among them, whole groups of each."""
    if not steps:
        return []
    last, count = len(steps) - 1, min(MOST_STEPS, len(steps))
    places = sorted({round(last * index / max(1, count - 1)) for index in range(count)})
    each = MOST_TRACES // len(places) // TRACES * TRACES
    return [view for place in places for view in kept_views(steps[place])[:each]]


def _with_ends(history: History, change: BeforeAfter | None) -> History:
    """The history with the held-out figures at the versions that were measured."""
    found = {name: dict(values) for name, values in history.items()}
    for name, figure in (change.figures if change else {}).items():
        for version, estimate in zip(change.versions, (figure.before, figure.after), strict=True):
            if estimate.value is not None and version.isdecimal():
                found.setdefault(SHORT[HELD_OUT[name]].name, {})[int(version)] = estimate.value
    return found


def _facts(cfg: RunConfig, history: History) -> list[tuple[str, str]]:
    rollout, curriculum = cfg.rollout, cfg.curriculum
    trained = history.get(SHORT["ledger_trained"].name, {})
    return [
        ("Model", Path(cfg.model.path).name),
        ("Reward", cfg.reward.name),
        ("Curriculum", curriculum.rule.value),
        ("Steps", str(cfg.run.steps)),
        ("Batch", f"{rollout.prompts_per_step} problems, {rollout.group_size} replies each"),
        ("Problems trained", f"{trained[max(trained)]:.0f}" if trained else "not measured"),
        ("Learning rate", f"{cfg.learner.lr:g}"),
        ("Seed", str(cfg.run.seed)),
    ]
