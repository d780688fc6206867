import json
import logging
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from pipeline.config import UserError, load_config
from pipeline.tracking import Tracker, TrackingError
from pipeline.tracking.catalogue import METRICS, CatalogueError
from pipeline.tracking.connection import check_tracking, connect, shown, tracking_uri
from pipeline.tracking.keys import clean_key


@pytest.fixture
def tracker(store, request):
    return Tracker(store, experiment=request.node.name, pause_s=0.01)


def again(tracker):
    """A tracker as a new process would make it."""
    return Tracker(tracker.uri, tracker.experiment, tracker.registry.name, pause_s=0.01)


def runs(tracker):
    return tracker._client.search_runs([tracker._experiment_id()])


def artifact(tracker, path):
    return open(tracker._client.download_artifacts(tracker.run_id, path)).read()


def test_long_odd_and_many_parameters_do_not_stop_the_start(tracker):
    config = {
        "prompt": "p" * 10_000,
        "many": {f"key_{i}": i for i in range(350)},
        "odd key [0]" + "k" * 300: "a",
        "odd key (0)" + "k" * 300: "b",
        "nested": [[1, [2, 3]], {"x": None}],
    }
    run_id = tracker.start("long", config, tags={"note": "n" * 9000, "a[b]": "1"})
    run = tracker._client.get_run(run_id)
    assert len(run.data.params) == 354
    assert run.data.params["prompt"].startswith("ppp") and "[cut: 10000 characters" in run.data.params["prompt"]
    assert sorted(v for k, v in run.data.params.items() if k.startswith("odd key")) == ["a", "b"]
    assert run.data.params["nested"] == '[[1, [2, 3]], {"x": null}]'
    assert run.data.tags[clean_key("a[b]")] == "1" and "[cut: 9000" in run.data.tags["note"]
    assert yaml.safe_load(artifact(tracker, "config.yaml")) == config


def test_a_child_made_before_its_start_is_the_run_that_starts(tracker):
    parent = tracker.start("comparison", {})
    child = tracker.add_child("comparison.decs-s0")
    assert tracker.add_child("comparison.decs-s0") == child != parent
    own = again(tracker)
    assert own.start("comparison.decs-s0", {"lr": 1}) == child
    tags = own._client.get_run(child).data.tags
    assert tags["mlflow.parentRunId"] == parent and "resumes" not in tags  # it is new, not resumed
    assert again(tracker).start("comparison.decs-s0", {"lr": 1}) == child
    assert len(runs(tracker)) == 2


def test_more_metrics_than_one_call_takes(tracker):
    tracker.start("many", {})
    tracker._enqueue(3, {f"m{i}": float(i) for i in range(1500)})
    tracker._drain()
    run = tracker._client.get_run(tracker.run_id)
    assert len(run.data.metrics) == 1500 and run.data.metrics["m1499"] == 1499.0
    assert tracker.counters["failed_writes"] == 0 and tracker.counters["writes"] == 2


def test_every_metric_of_the_catalogue_is_logged_and_nothing_else(tracker):
    tracker.start("all", {})
    tracker.log_step(1, {metric.short: 0.5 for metric in METRICS.values()})
    assert tracker._client.get_run(tracker.run_id).data.metrics.keys() == METRICS.keys()
    with pytest.raises(CatalogueError, match="did you mean 'kappa'"):
        tracker.log_step(2, {"kapa": 0.5})
    assert tracker._client.get_run(tracker.run_id).data.metrics.keys() == METRICS.keys()


def test_killed_and_resumed_is_one_run_with_marked_repeats(tracker):
    config = {"learner": {"lr": 1e-4, "ranks": 2}}
    run_id = tracker.start("killed", config)
    for step in range(1, 6):
        tracker.log_step(step, {"loss": step / 10, "lr": 1e-4})

    second = again(tracker)  # the first is never finished: it was killed after the checkpoint of step 3
    assert second.start("killed", {"learner": {"lr": 3e-4, "ranks": 2, "new": 1}}) == run_id
    for step in range(4, 9):
        second.log_step(step, {"loss": step / 10 if step == 5 else step, "lr": 3e-4 if step > 5 else 1e-4})
    second.finish()

    assert [run.info.run_id for run in runs(tracker)] == [run_id]
    run = tracker._client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"learner.lr": "0.0001", "learner.ranks": "2", "learner.new": "1"}
    assert run.data.tags["resume_1/learner.lr"] == "0.0003" and run.data.tags["resumes"] == "1"
    assert "resume_1/learner.ranks" not in run.data.tags
    assert run.data.tags["replayed_steps"] == "4"  # step 5 came out the same and was not written again
    assert second.history()["train/loss"] == {1: 0.1, 2: 0.2, 3: 0.3, 4: 4.0, 5: 0.5, 6: 6.0, 7: 7.0, 8: 8.0}
    points = tracker._client.get_metric_history(run_id, "train/loss")
    assert sorted(point.step for point in points) == [1, 2, 3, 4, 4, 5, 6, 7, 8]
    assert max((p for p in points if p.step == 4), key=lambda p: p.timestamp).value == 4.0
    assert len(tracker._client.get_metric_history(run_id, "train/lr")) == 8
    assert yaml.safe_load(artifact(second, "config_resume_1.yaml"))["learner"]["lr"] == 3e-4
    assert yaml.safe_load(artifact(second, "config.yaml"))["learner"]["lr"] == 1e-4

    third = again(tracker)
    assert third.start("killed", {"learner": {"lr": 5e-4, "ranks": 2}}, resume_run_id=run_id) == run_id
    assert third._client.get_run(run_id).info.status == "RUNNING"
    assert third.history() == second.history()
    third.finish("KILLED")
    third.finish("KILLED")
    tags = third._client.get_run(run_id).data.tags
    assert tags["resume_2/learner.lr"] == "0.0005" and tags["resume_1/learner.lr"] == "0.0003"


def test_the_last_value_of_a_repeated_step_wins_in_the_same_millisecond(tracker):
    tracker.start("same time", {})
    tracker.log_step(1, {"loss": 9.0}, timestamp_ms=1000)
    tracker.log_step(1, {"loss": 2.0}, timestamp_ms=1000)
    assert tracker._client.get_run(tracker.run_id).data.metrics["train/loss"] == 2.0
    assert tracker.history() == {"train/loss": {1: 2.0}}


def test_without_resume_a_new_run_begins_and_a_strange_id_is_refused(tracker):
    first = tracker.start("fresh", {})
    assert again(tracker).start("fresh", {}, resume=False) != first
    with pytest.raises(UserError, match="run id 'nowhere' cannot be read"):
        again(tracker).start("fresh", {}, resume_run_id="nowhere")
    tracker._client.delete_run(first)
    with pytest.raises(UserError, match="is deleted"):
        again(tracker).start("fresh", {}, resume_run_id=first)


def test_a_finished_run_takes_later_artifacts_without_being_opened(tracker):
    run_id = tracker.start("over", {"a": 1})
    tracker.log_step(1, {"loss": 1.0})
    tracker.finish()
    later = again(tracker)
    later.attach(run_id)
    assert later.log_text("text", "later.txt") and later.history() == {"train/loss": {1: 1.0}}
    run = tracker._client.get_run(run_id)
    assert run.info.status == "FINISHED" and "resumes" not in run.data.tags
    with pytest.raises(UserError, match="cannot be read"):
        later.attach("nowhere")


def test_a_deleted_experiment_is_named(tracker):
    tracker._client.delete_experiment(tracker._experiment_id())
    with pytest.raises(UserError, match="is deleted; restore it"):
        tracker.start("x", {})


def test_artifacts_and_tables_replace_themselves(tracker, tmp_path):
    tracker.start("artifacts", {})
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("a")
    rows = [{"step": 1, "text": "<b>"}, {"step": 2, "share": 0.5}]
    assert tracker.log_file(tmp_path / "sub" / "a.txt", "files") and tracker.log_folder(tmp_path / "sub", "folder")
    assert tracker.log_table(rows, "tables/traces.json") and tracker.log_table(rows, "tables/traces.json")
    assert artifact(tracker, "folder/a.txt") == artifact(tracker, "files/a.txt") == "a"
    table = json.loads(artifact(tracker, "tables/traces.json"))
    assert table == {"columns": ["step", "text", "share"], "data": [[1, "<b>", None], [2, None, 0.5]]}
    tags = tracker._client.get_run(tracker.run_id).data.tags
    assert json.loads(tags["mlflow.loggedArtifacts"]) == [{"path": "tables/traces.json", "type": "table"}]


def test_a_store_that_goes_away_costs_no_step(tracker, monkeypatch, caplog):
    tracker.start("away", {})
    real, calls = tracker._client.log_batch, []

    def away(*args, **kwargs):
        calls.append(1)
        raise ConnectionError("refused")

    monkeypatch.setattr(tracker._client, "log_batch", away)
    with caplog.at_level(logging.WARNING):
        tracker.log_step(1, {"loss": 1.0})
        tracker.log_step(2, {"loss": 2.0})
    assert len(calls) == 3 + 1  # once away is known, one try a step
    assert tracker.counters["failed_writes"] == 2 and "2 batches of metrics wait" in caplog.text
    monkeypatch.setattr(tracker._client, "log_batch", real)
    tracker.log_step(3, {"loss": 3.0})
    assert {p.step for p in tracker._client.get_metric_history(tracker.run_id, "train/loss")} == {1, 2, 3}

    monkeypatch.setattr(tracker._client, "log_batch", away)
    tracker.log_step(4, {"loss": 4.0, "lr": 1.0})
    counters = tracker.finish()
    assert counters["lost_metrics"] == 2
    assert tracker._client.get_run(tracker.run_id).data.tags["tracking/lost_metrics"] == "2"


def test_an_artifact_that_is_not_there_is_counted_and_training_goes_on(tracker):
    tracker.start("missing", {})
    assert not tracker.log_file("/nowhere/at/all.txt")
    assert tracker.counters["failed_writes"] == 1 and tracker.counters["retries"] == 0


def test_a_loss_that_is_not_finite_is_counted_and_left_out(tracker):
    tracker.start("nan", {})
    tracker.log_step(1, {"loss": float("nan"), "lr": 0.1})
    assert tracker.history() == {"train/lr": {1: 0.1}}
    tracker.finish("FAILED")
    run = tracker._client.get_run(tracker.run_id)
    assert run.info.status == "FAILED" and run.data.tags["tracking/non_finite"] == "1"


def test_only_the_process_that_made_it_may_use_it(tracker, monkeypatch):
    with pytest.raises(TrackingError, match="call Tracker.start first"):
        tracker.log_step(1, {"loss": 1.0})
    tracker.start("pid", {})
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(TrackingError, match="belongs to the process"):
        tracker.log_step(1, {"loss": 1.0})


@pytest.mark.parametrize("uri", ["sqlite:////proc/nowhere/mlflow.db", "http://127.0.0.1:9"])
def test_a_store_that_cannot_be_used_is_named_at_the_start(uri):
    with pytest.raises(UserError, match=f"MLflow store '{uri}'"):
        connect(uri, deadline_s=30)


def test_a_server_that_takes_calls_and_never_answers_meets_the_deadline():
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self):
            release.wait(20)

        do_POST = do_GET

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(UserError, match="no answer within 1 s"):
            connect(f"http://user:secret@127.0.0.1:{server.server_port}", deadline_s=1)
    finally:
        release.set()
        server.shutdown()
        server.server_close()


def test_a_password_is_not_shown():
    assert shown("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"


def test_the_store_is_taken_from_config_then_environment_then_storage(monkeypatch, tmp_path):
    from pipeline.config import RunConfig

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = RunConfig.model_validate({"storage": {"uri": str(tmp_path)}})
    assert tracking_uri(config) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host")
    assert tracking_uri(config) == "http://host"
    config = RunConfig.model_validate({"tracking": {"uri": "sqlite:///x.db"}})
    assert tracking_uri(config) == "sqlite:///x.db"


@pytest.mark.parametrize(
    "uri", ["ftp://host/x", "mlruns", "/tmp/mlruns", "", "file:///tmp/x", "mysql+pymysql://host/db"]
)
def test_what_would_keep_files_in_the_working_directory_is_no_store(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="tracking.uri"):
        connect(uri)
    assert not any(tmp_path.iterdir())


def test_the_default_experiment_has_no_place_beside_a_sqlite_file(tmp_path):
    where = [f"tracking.uri=sqlite:///{tmp_path}/m.db"]
    check_tracking(load_config(None, where))
    with pytest.raises(UserError, match="'Default' is MLflow's own"):
        check_tracking(load_config(None, [*where, "tracking.experiment=Default"]))
