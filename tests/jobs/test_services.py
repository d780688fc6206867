"""The local services: state, ports and processes; the last test starts the real ones."""

import json
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from jobs import _services, services
from jobs._services import (
    Launch,
    Service,
    ServiceError,
    await_ready,
    family,
    free_port,
    root_process,
    spawn,
    start_time,
    stop,
)
from pipeline.config import UserError


def python(code):
    return [sys.executable, "-c", code]


def launch(code, url="http://127.0.0.1:9/"):
    return Launch("probe", python(code), {}, {}, {}, url)


def test_fixed_port_in_use_is_a_user_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=str(port)):
            free_port(port)


def test_state_round_trip_and_damage(tmp_path):
    service = Service("probe", 12, 3.5, "mark", "log", {"http": 1}, {"probe": "http://x"})
    _services.write_state(tmp_path, {"probe": service})
    assert _services.read_state(tmp_path) == {"probe": service}
    (tmp_path / "services.json").write_text("{}")
    with pytest.raises(UserError, match="services.json"):
        _services.read_state(tmp_path)
    assert _services.read_state(tmp_path / "none") == {}


def test_recycled_process_id_is_not_ours(tmp_path):
    other = subprocess.Popen(python("import time; time.sleep(60)"))
    try:
        started = start_time(psutil.Process(other.pid))
        stranger = Service("probe", other.pid, started - 3600, "mark", str(tmp_path / "log"))
        assert root_process(stranger) is None and family(stranger) == []
        stop(stranger, grace_s=0.1)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_service_is_known_after_the_clock_was_set(monkeypatch):
    child = subprocess.Popen(python("import time; time.sleep(60)"))
    try:
        service = Service("probe", child.pid, start_time(psutil.Process(child.pid)), "mark", "log")
        boot = psutil.boot_time()
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot + 31)
        assert psutil.boot_time() == boot + 31 and root_process(service).pid == child.pid
    finally:
        child.kill()
        child.wait()


def test_stop_ends_children_in_other_sessions(tmp_path):
    code = (
        "import subprocess, sys, time;"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
        "print('ready', flush=True); time.sleep(60)"
    )
    service = spawn(launch(code), tmp_path)
    while "ready" not in (tmp_path / "probe.log").read_text():
        time.sleep(0.05)
    pids = {process.pid for process in family(service)}
    assert len(pids) == 2
    stop(service)
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_orphans_are_found_after_their_parent_died(tmp_path):
    code = (
        "import subprocess, sys;"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)"
    )
    service = spawn(launch(code), tmp_path)
    deadline = time.monotonic() + 20
    while root_process(service) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(family(service)) == 1
    stop(service)
    assert family(service) == []


def test_process_that_ignores_the_request_is_forced(tmp_path):
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    service = spawn(launch(code), tmp_path)
    while "ready" not in (tmp_path / "probe.log").read_text():
        time.sleep(0.05)
    stop(service, grace_s=0.3)
    assert root_process(service) is None


def test_failed_start_shows_the_last_log_lines(tmp_path):
    plan = launch("raise SystemExit('no such database')")
    with pytest.raises(ServiceError, match="no such database"):
        await_ready(spawn(plan, tmp_path), plan, 20)


def test_slow_start_names_what_it_waits_for(tmp_path):
    plan = launch("import time; time.sleep(60)")
    service = spawn(plan, tmp_path)
    try:
        with pytest.raises(ServiceError, match="probe was not ready at http://127.0.0.1:9/ within"):
            await_ready(service, plan, 0.3)
    finally:
        stop(service)


def test_partial_start_is_undone(tmp_path, monkeypatch):
    def no_mlflow(folder, port):
        raise UserError("no room")

    sleeper = launch("import time; time.sleep(60)")
    monkeypatch.setattr(services, "ray_launch", lambda **options: sleeper)
    monkeypatch.setattr(services, "await_ready", lambda service, plan: None)
    monkeypatch.setattr(services, "mlflow_launch", no_mlflow)
    before = set(psutil.Process().children())
    with pytest.raises(UserError, match="no room"):
        services.up(tmp_path)
    assert _services.read_state(tmp_path) == {}
    fresh = set(psutil.Process().children()) - before
    assert [child for child in fresh if child.status() != "zombie"] == []


def test_a_start_that_ends_by_itself_is_tried_again(tmp_path, monkeypatch, capsys):
    fails, works = launch("raise SystemExit('overloaded')"), launch("import time; time.sleep(60)")
    plans = [fails, works]
    monkeypatch.setattr(services, "ray_launch", lambda **options: plans.pop(0))
    monkeypatch.setattr(services, "await_ready", lambda service, plan: plan is works or await_ready(service, plan, 30))
    try:
        services.up(tmp_path, only=("ray",))
        assert "overloaded" in capsys.readouterr().err and services.status(tmp_path)["ray"][1]
    finally:
        assert services.down(tmp_path) == ["ray"]


def test_down_without_anything_running(tmp_path, capsys):
    assert services.main(["down", "--folder", str(tmp_path / "none")]) == 0
    assert services.main(["status", "--folder", str(tmp_path)]) == 1
    assert "nothing was running" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["start"],
        ["up", "--cpus", "²"],
        ["up", "--cpus", "0"],
        ["up", "--mlflow-port", "70000"],
        ["up", "--por", "1"],
    ],
)
def test_mistakes_in_the_call_are_one_line(argv, capsys):
    assert services.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and "_" not in err


def test_taken_port_exits_with_two(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert services.main(["up", "--folder", str(tmp_path), "--mlflow-port", port]) == 2
    assert port in capsys.readouterr().err
    assert (
        not (tmp_path / "services.json").exists()
        or json.loads((tmp_path / "services.json").read_text())["services"] == {}
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_up_status_up_down(tmp_path, capsys):
    arguments = ["--folder", str(tmp_path)]
    try:
        assert services.main(["up", *arguments]) == 0
        first = _services.read_state(tmp_path)
        assert httpx.get(first["mlflow"].urls["mlflow"] + "/health").is_success
        assert httpx.get(first["ray"].urls["dashboard"] + "/api/version").json()["ray_version"]
        assert first["ray"].urls["dashboard"] in capsys.readouterr().out
        assert services.main(["status", *arguments]) == 0
        assert services.main(["up", *arguments]) == 0
        assert _services.read_state(tmp_path) == first

        stop(first["mlflow"])
        assert services.main(["status", *arguments]) == 1
        assert services.main(["up", *arguments]) == 0
        second = _services.read_state(tmp_path)
        assert second["ray"] == first["ray"] and second["mlflow"].pid != first["mlflow"].pid
        assert second["mlflow"].urls == first["mlflow"].urls
        members = [process for service in second.values() for process in family(service)]
        assert len(members) > 5
    finally:
        assert services.main(["down", *arguments]) == 0
    assert [process for process in members if process.is_running() and process.status() != "zombie"] == []
    assert services.main(["down", *arguments]) == 0
