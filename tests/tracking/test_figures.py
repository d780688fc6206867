from pipeline.tracking.figures import log_curves, run_figure, save_figure, summary_rows
from pipeline.tracking.tracker import Tracker

HISTORY = {
    "curriculum/kappa": {1: 0.1, 2: 0.2},
    "rollout/accuracy": {1: 0.5, 2: 0.9, 3: 0.8},
    "rollout/tokens_mean": {1: 160.0, 2: 40.0, 3: 40.0},
    "rollout.search/accuracy": {1: 0.25},
}


def test_the_summary_knows_which_way_is_better():
    rows = {row["metric"]: row for row in summary_rows(HISTORY)}
    assert list(rows) == ["rollout.search/accuracy", "rollout/accuracy", "rollout/tokens_mean", "curriculum/kappa"]
    assert (rows["rollout/accuracy"]["best"], rows["rollout/accuracy"]["best_step"]) == (0.9, 2)
    assert rows["rollout/tokens_mean"] | {"unit": ""} == {
        "metric": "rollout/tokens_mean", "unit": "", "better": "down", "first": 160.0, "last": 40.0, "change": -120.0,
        "best": 40.0, "best_step": 2, "steps": 3, "last_step": 3,
    }  # fmt: skip
    assert rows["curriculum/kappa"]["best"] is None
    assert [row["metric"] for row in summary_rows(HISTORY, ["kappa", "loss"])] == ["curriculum/kappa"]


def test_curves_show_the_values_as_logged():
    figure = run_figure(HISTORY, "a run")
    lines = {line.get_label(): line.get_xydata().tolist() for axes in figure.axes for line in axes.lines}
    assert lines["accuracy"] == [[1, 0.5], [2, 0.9], [3, 0.8]]
    assert lines["tokens"] == [[1, 160], [2, 40], [3, 40]] and lines["kappa"] == [[1, 0.1], [2, 0.2]]
    assert any("not logged" in text.get_text() for axes in figure.axes for text in axes.texts)


def test_the_same_run_gives_the_same_file(tmp_path):
    one, other = (save_figure(run_figure(HISTORY), tmp_path / name) for name in ("a.svg", "b.svg"))
    assert one.read_bytes() == other.read_bytes()
    assert save_figure(run_figure({}), tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_curves_and_table_become_artifacts(store):
    tracker = Tracker(store, "figures", pause_s=0.01)
    tracker.start("figures", {})
    tracker.log_step(1, {"accuracy": 0.5, "kappa": 0.1})
    assert log_curves(tracker, "a run")
    found = {a.path for folder in ("figures", "tables") for a in tracker._client.list_artifacts(tracker.run_id, folder)}
    assert found == {"figures/curves.png", "figures/curves.svg", "tables/summary.json"}
