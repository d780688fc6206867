import subprocess

import pytest

from pipeline.tracking.code_state import COMMIT, DIRTY, WHERE, code_state, code_tags


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("PIPELINE_CODE_STATE", raising=False)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.py").write_text("1\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)
    return tmp_path


def head(folder):
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def test_clean_changed_and_new_files(checkout):
    commit = head(checkout)
    assert code_state(checkout) == commit
    assert code_tags(checkout) == {COMMIT: commit, DIRTY: "false", WHERE: str(checkout)}
    (checkout / "runs").mkdir()
    (checkout / "runs" / "log").write_text("")  # results are no code
    assert code_state(checkout) == commit
    (checkout / "jobs" / "b.py").write_text("")
    assert code_state(checkout) == f"{commit}+dirty"
    (checkout / "jobs" / "b.py").unlink()
    (checkout / "jobs" / "a.py").write_text("2\n")
    assert code_tags(checkout)[DIRTY] == "true"


def test_a_copy_without_its_repository_is_told_or_unknown(checkout, monkeypatch):
    inside = checkout / "copy"
    inside.mkdir()
    assert code_tags(inside)[COMMIT] == code_tags(inside)[DIRTY] == "unknown"
    monkeypatch.setenv("PIPELINE_CODE_STATE", "abc+dirty")
    assert code_tags(inside) == {COMMIT: "abc", DIRTY: "true", WHERE: str(inside)}
