"""The page of the demo's run, with what was measured through the endpoint in place of what the run measured itself."""

from pathlib import Path
from typing import Any

from jobs._measure import Measured
from pipeline.config import RunConfig
from pipeline.evaluation import ScoredTrace
from pipeline.loop.before_after import answered, compare
from pipeline.loop.examples import view
from pipeline.loop.report import PAGE, write_report
from pipeline.loop.scoring import ScoredGroup
from pipeline.tracking import TraceView, Tracker
from pipeline.tracking.run_report_data import BeforeAfter, Pair


def keep_page(
    cfg: RunConfig, folder: Path, before: Measured, after: Measured, tokenizer: Any, tracker: Tracker
) -> bool:
    """Writes report.html to the run's `folder` and to the run that `tracker` is attached to; False where MLflow did not
    take it. `cfg` has the run's name."""
    pairs = reply_pairs(before, after, tokenizer)
    page = write_report(cfg, folder, tracker.history(), change(cfg, before, after), pairs)
    return tracker.log_text(page, PAGE)


def change(cfg: RunConfig, before: Measured, after: Measured) -> BeforeAfter:
    """Every figure before and after, through the endpoint."""
    where = (
        f"Measured through the endpoint before training and after it: {len(before.problems)} held-out problems, "
        f"{cfg.evaluation.samples} {'reply' if cfg.evaluation.samples == 1 else 'replies'} each at temperature "
        f"{cfg.evaluation.temperature:g}. Small numbers are 95 % bootstrap intervals over problems."
    )
    versions = ("–".join(map(str, before.versions)), "–".join(map(str, after.versions)))
    return compare(answered(before.scored, before.problems), answered(after.scored, after.problems), versions, where)


def reply_pairs(before: Measured, after: Measured, tokenizer: Any) -> list[Pair]:
    """Every problem with a reply before and one after, the first of each."""
    later = {scored.trace.problem_id: scored for scored in reversed(after.scored)}
    earlier = {scored.trace.problem_id: scored for scored in reversed(before.scored)}

    def shown(scored: ScoredTrace) -> TraceView:
        problem = before.problems[scored.trace.problem_id]
        return view(ScoredGroup(problem.id, problem, (scored,)), scored, tokenizer)

    return [(shown(earlier[key]), shown(later[key])) for key in reversed(earlier) if key in later]
