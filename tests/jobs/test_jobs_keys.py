"""`python -m jobs.keys`: one look at each key, and mistakes in one sentence."""

import stat

import pytest

from jobs import keys
from pipeline.config import load_config
from serve.access import AccessSettings
from serve.access.keys import digest_of, read_keys
from serve.arguments import app_args
from serve.policy import Policy


def run(*argv):
    return keys.command(list(argv))


def add(file, name, *more):
    return run("add", "--name", name, "--scope", "infer", "--file", str(file), *more)


def test_a_key_is_shown_once(tmp_path, capsys):
    file = tmp_path / "keys.json"
    own = ("--expires", "30d", "--requests-per-minute", "60", "--priority=-1")
    assert add(file, "ann", *own) == 0
    out, _ = capsys.readouterr()
    secret = out.strip()
    (key,) = read_keys(file)
    assert key.digest == digest_of(secret) and (key.name, key.scope, key.priority) == ("ann", "infer", -1)
    assert key.expires == pytest.approx(key.created + 30 * 86400) and key.requests_per_minute == 60
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and secret not in file.read_text()
    assert run("list", "--file", str(file)) == 0
    out, _ = capsys.readouterr()
    assert "ann" in out and "expires" in out and "requests_per_minute=60" in out and key.digest not in out


def test_add_and_revoke(tmp_path, capsys):
    file = tmp_path / "keys.json"
    assert add(file, "a") == add(file, "b") == 0
    assert run("revoke", "--name", "a", "--file", str(file)) == 0
    assert [key.name for key in read_keys(file)] == ["b"]
    assert run("revoke", "--name", "b", "--file", str(file)) == 0
    capsys.readouterr()
    assert run("list", "--file", str(file)) == 0 and capsys.readouterr().out == "no keys\n"


def test_the_file_may_come_from_the_config(tmp_path, capsys):
    file = tmp_path / "keys.json"
    assert run("add", "--name", "a", "--scope", "admin", f"serve.access.keys_file={file}") == 0
    assert read_keys(file)[0].scope == "admin"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["add", "--name", "x", "--scope", "infer"], "--file"),
        (["add", "--scope", "infer", "--file", "F"], "--name"),
        (["add", "--name", "x", "--file", "F"], "--scope"),
        (["add", "--name", "x", "--scope", "root", "--file", "F"], "root"),
        (["add", "--name", "a", "--scope", "infer", "--file", "F"], "already"),
        (["add", "--name", "x", "--scope", "infer", "--file", "F", "--expires", "soon"], "30d"),
        (["add", "--name", "x", "--scope", "infer", "--file", "F", "--expires", "0d"], "30d"),
        (["add", "--name", "x\n", "--scope", "infer", "--file", "F"], "printable"),
        (["add", "--name", "x", "--scope", "infer", "--file", "F", "--requests-per-minute", "nan"], "above 0"),
        (["add", "--name", "x", "--scope", "infer", "--file", "no/F"], "folder"),
        (["revoke", "--name", "aa", "--file", "F"], "did you mean 'a'"),
        (["revoke", "--name", "a", "--file", "G"], "no key file"),
        (["list", "--file", "G"], "no key file"),
        (["drop", "--file", "F"], "drop"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, capsys, argv, says):
    monkeypatch.chdir(tmp_path)
    assert add(tmp_path / "F", "a") == 0
    before = (tmp_path / "F").read_text()
    capsys.readouterr()
    assert run(*argv) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and says in error and error.count("\n") == 1
    assert (tmp_path / "F").read_text() == before


@pytest.fixture
def given(monkeypatch):
    """What the running endpoint, which has limits of its own, was told to follow."""
    access = AccessSettings(requests_per_minute=7, max_waiting=3, cors_origins=("https://a.example",), replicas=2)
    config = Policy(1, "/v1", "d" * 64).as_config() | {"access": access.to_config()}
    app = {
        "deployed_app_config": {"args": app_args(load_config(None, []), "/m")},
        "deployments": {"HotSwapServer:policy": {"deployment_config": {"user_config": config}}},
    }
    monkeypatch.setattr("serve.client.details", lambda dashboard: {"applications": {"policy": app}})
    told = []
    monkeypatch.setattr("serve.client.set_access", lambda *args: told.append(args))
    return told


APPLY = ("--apply", "--dashboard", "http://127.0.0.1:1")


def test_apply_changes_the_keys_alone(tmp_path, given):
    file = tmp_path / "keys.json"
    assert add(file, "a", *APPLY, f"serve.access.keys_file={file}") == 0
    config = given[0][1]
    assert (config["requests_per_minute"], config["max_waiting"], config["replicas"]) == (7, 3, 2)
    assert config["cors_origins"] == ["https://a.example"] and [key["name"] for key in config["keys"]] == ["a"]


def test_what_the_endpoint_would_not_take_does_not_reach_the_file(tmp_path, given, capsys):
    file = tmp_path / "keys.json"
    assert add(file, "a", *APPLY) == 0
    before = file.read_text()
    assert run("revoke", "--name", "a", "--file", str(file), *APPLY) == 2
    error = capsys.readouterr().err
    assert "open to all" in error and "was revoked" not in error
    assert add(file, "b", *APPLY, "--priority=-1") == 2 and "first come, first served" in capsys.readouterr().err
    assert file.read_text() == before and len(given) == 1


def test_apply_hands_the_settings_to_the_endpoint(tmp_path, given, capsys):
    file = tmp_path / "keys.json"
    apply = ("--apply", "--dashboard", "http://127.0.0.1:1", "serve.access.requests_per_minute=9", "serve.replicas=2")
    assert add(file, "a", *apply) == 0
    dashboard, config = given[0]  # the deadline is the deployment's
    assert dashboard == "http://127.0.0.1:1"
    assert config["requests_per_minute"] == 9 and config["replicas"] == 2 and config["keys"][0]["name"] == "a"
    assert run("revoke", "--name", "a", "--file", str(file), *apply) == 2  # would open the endpoint to all
    assert "open to all" in capsys.readouterr().err and len(given) == 1
