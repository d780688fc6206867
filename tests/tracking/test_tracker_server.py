"""The tracker against a real MLflow server, which is stricter than a bare database."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from pipeline.tracking import Tracker, trace_report_html
from pipeline.tracking.catalogue import METRICS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DEADLINE_S = 240


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def start(folder, port):
    command = [
        sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port),
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(folder / "server.log", "ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **quiet}, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                stop(process)
                raise AssertionError((folder / "server.log").read_text()[-2000:]) from None
            time.sleep(0.5)


def stop(process):
    """End the server and its worker: the process group started for it. The worker holds the port and may outlive
    its parent, so wait until the whole group is gone."""
    deadline = time.monotonic() + 30
    try:
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()  # reaps the parent
            os.killpg(process.pid, 0)
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(20)


def test_a_run_through_a_server_that_is_restarted(tmp_path):
    port = free_port()
    server = start(tmp_path, port)
    try:
        tracker = Tracker(f"http://127.0.0.1:{port}", pause_s=0.1)
        run_id = tracker.start("served", {"prompt": "p" * 10_000, **{f"key_{i}": i for i in range(350)}})
        tracker.log_step(1, {metric.short: 0.5 for metric in METRICS.values()})
        assert tracker.log_text(trace_report_html([]), "traces/step_1.html")
        assert tracker.log_table([{"step": 1}], "tables/a.json") and tracker.log_table([{"step": 1}], "tables/a.json")

        snapshot = tmp_path / "snapshot"  # a folder outside the artifacts, which a server refuses as a source
        snapshot.mkdir()
        identity = {"version": 1, "digest": "d" * 64, "step": 1, "config_digest": "c" * 64}
        found = tracker.register_version(str(snapshot), **identity)
        assert tracker.register_version(str(snapshot), **identity) == found
        assert tracker.register_version("s3://bucket/v2", **{**identity, "version": 2}).number == 2
        tracker.set_alias("champion", found.number)
        assert tracker.served_version().uri == str(snapshot)

        stop(server)
        tracker.log_step(2, {"loss": 2.0})
        assert tracker.counters["failed_writes"] == 1
        server = start(tmp_path, port)
        tracker.log_step(3, {"loss": 3.0})
        tracker.finish()

        second = Tracker(f"http://127.0.0.1:{port}", pause_s=0.1)
        assert second.start("served", {"key_0": "changed"}) == run_id
        assert second.history()["train/loss"] == {1: 0.5, 2: 2.0, 3: 3.0}
        assert second._client.get_run(run_id).data.tags["resume_1/key_0"] == "changed"
        second.finish()
    finally:
        stop(server)
