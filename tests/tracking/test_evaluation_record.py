"""An evaluation's figures in a real store, and its plot."""

import json
from pathlib import Path

from pipeline.tracking import PARENT, Tracker
from pipeline.tracking.evaluation_record import MOST_LEVELS, evaluation_figure, evaluation_metrics, keep_evaluation

FIGURES = {
    "accuracy": 0.5, "unknown_rate": 0.0, "tokens_mean": 80.0, "nrp_share": None, "tokens_per_correct": 160.0,
    "truncated_rate": 0.25, "accuracy_interval": [0.4, 0.6],
}  # fmt: skip
CUT = {"48": {"accuracy": 0.1, "interval": None}, "96": {"accuracy": 0.5, "interval": [0.4, 0.6]}}


def report(**changes):
    return {
        "identity": {"suite": {"name": "tiny"}},
        "all": {**FIGURES, "pass_at_k": {}, "budgets": CUT},
        "by_source": {"tiny/search": FIGURES},
        "by_difficulty": {"search, 3 trials": FIGURES, "unknown": {**FIGURES, "accuracy": None}},
        **changes,
    }


def test_figures_without_a_denominator_are_left_out():
    found = evaluation_metrics(report())
    assert found["eval_accuracy"] == 0.5 and found["eval.tiny_search/tokens_mean"] == 80
    assert len(found) == 10 and not any("nrp" in name for name in found)


def test_the_plot_has_cuts_and_levels():
    cut, bars = evaluation_figure(report(), "tiny").axes
    assert list(cut.lines[0].get_ydata()) == [0.1, 0.5] and len(cut.collections) == 1
    assert [bar.get_width() for bar in bars.patches] == [0.5]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["search, 3 trials"]
    many = {f"level {n}": FIGURES for n in range(50)}
    assert len(evaluation_figure(report(by_difficulty=many), "tiny").axes[1].patches) == MOST_LEVELS
    by_source = evaluation_figure(report(by_difficulty={}), "tiny").axes[1]
    assert [label.get_text() for label in by_source.get_yticklabels()] == ["tiny/search"]
    nothing = report(all={**FIGURES, "budgets": {}}, by_difficulty={}, by_source={})
    assert all(not axes.patches for axes in evaluation_figure(nothing, "tiny").axes)


def test_it_is_kept_below_its_parent_and_once(store):
    def evaluate(parent):
        tracker = Tracker(store, experiment="evaluations", pause_s=0.01)
        run_id = tracker.start("measured", {"run": {"seed": 0}}, {"kind": "evaluation", PARENT: parent})
        assert keep_evaluation(tracker, report())
        tracker.finish()
        return tracker, run_id

    parent = Tracker(store, experiment="evaluations").start("trained", {})
    tracker, run_id = evaluate(parent)
    again, same = evaluate(parent)
    assert same == run_id
    run = tracker._client.get_run(run_id)
    assert run.info.status == "FINISHED" and run.data.tags[PARENT] == parent
    assert run.data.metrics["eval/accuracy"] == 0.5
    assert len(tracker._client.get_metric_history(run_id, "eval/accuracy")) == 1
    names = {
        item.path for folder in (None, "tables", "figures") for item in tracker._client.list_artifacts(run_id, folder)
    }
    assert {"evaluation.json", "tables/evaluation.json", "figures/evaluation.png"} <= names
    kept = Path(tracker._client.download_artifacts(run_id, "evaluation.json")).read_text()
    assert json.loads(kept) == report()
