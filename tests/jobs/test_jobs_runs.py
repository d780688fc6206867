"""A run's name and folder, and the lock on it."""

import re
import subprocess
import sys

import pytest

from jobs._runs import held, named, run_folder
from pipeline.config import UserError, load_config

HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "a+") as handle:
    fcntl.flock(handle, fcntl.LOCK_EX)
    handle.write("4711")
    handle.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_given_name_stays():
    cfg = load_config(None, ["run.name=mine"])
    assert named(cfg, "infra/presets/tiny.yaml") is cfg


@pytest.mark.parametrize("file,stem", [("infra/presets/tiny.yaml", "tiny"), (None, "run")])
def test_a_new_name_says_what_and_when(file, stem):
    cfg = load_config(None, ["run.seed=4"])
    one, two = named(cfg, file), named(cfg, file)
    assert re.fullmatch(stem + r"-\d{8}-\d{6}-[0-9a-f]{4}", one.run.name) and one.run.name != two.run.name
    assert one.run.seed == 4 and one.model_copy(update={"run": cfg.run}) == cfg
    load_config(None, [f"run.name={one.run.name}"])


def test_folder_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    local = load_config(None, ["run.name=mine", "storage.uri=kept"])
    assert run_folder(local) == tmp_path / "kept" / "mine"
    remote = load_config(None, ["run.name=mine", "storage.uri=s3://bucket/prefix"])
    assert run_folder(remote) == tmp_path / "runs" / "mine"


def test_held_by_one_only_and_released(tmp_path):
    folder = tmp_path / "runs" / "mine"
    with held(folder):
        for _ in range(2):
            with pytest.raises(UserError, match=r"run 'mine' is already going on \(process \d+, folder") as caught:
                with held(folder):
                    pytest.fail("held twice")
            assert "choose another run.name" in str(caught.value) and "\n" not in str(caught.value)
        with held(tmp_path / "runs" / "other"):
            pass
    with held(folder):
        pass


def test_an_error_inside_releases(tmp_path):
    with pytest.raises(KeyError), held(tmp_path):
        raise KeyError("x")
    with held(tmp_path):
        pass


def test_a_killed_holder_lets_go(tmp_path):
    command = [sys.executable, "-S", "-c", HOLDER, str(tmp_path / "run.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(UserError, match="process 4711"):
            with held(tmp_path):
                pytest.fail("held twice")
        other.kill()
        other.wait()
    with held(tmp_path):
        assert (tmp_path / "run.lock").read_text() != "4711"
