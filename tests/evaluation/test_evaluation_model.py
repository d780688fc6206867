"""What --model can name: folders, registered versions, endpoints; and that each has an identity."""

import asyncio
import shutil
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from pipeline.config import ROOT, Evaluation, UserError, load_config
from pipeline.evaluation.endpoint import KEY_VARIABLE, EndpointClient
from pipeline.evaluation.model import Endpoint, LocalModel, folder_digest, open_model, probe
from pipeline.problems import load_problems
from pipeline.storage import open_storage
from pipeline.tracking import Registry, TrackingError
from pipeline.weights import read_manifest
from tests.evaluation.fake_endpoint import FakeEndpoint, serving

TINY = ROOT / "infra" / "models" / "tiny"
DIGEST, VERSION = read_manifest(TINY).digest, read_manifest(TINY).version


def config(tmp_path):
    return load_config(None, [f"storage.uri={tmp_path / 'storage'}", f"tracking.uri=sqlite:///{tmp_path}/m.db"])


def test_a_snapshot_folder_is_known_by_its_manifest(tmp_path):
    found = open_model(str(TINY), config(tmp_path), tmp_path)
    assert found == LocalModel(str(TINY), str(TINY), DIGEST, read_manifest(TINY).version, verified=True)


def plain_copy(folder):
    shutil.copytree(TINY, folder)
    (folder / "manifest.json").unlink()
    return folder


def test_a_plain_folder_is_known_by_its_files(tmp_path):
    folder = plain_copy(tmp_path / "model")
    found = open_model(str(folder), config(tmp_path), tmp_path)
    assert (found.digest, found.verified) == (folder_digest(folder), False)
    assert folder_digest(plain_copy(tmp_path / "other")) == found.digest  # not by its place
    for name in ("model.safetensors", "tokenizer.json", "config.json", "chat_template.jinja"):
        changed = plain_copy(tmp_path / name)
        (changed / name).write_bytes((changed / name).read_bytes() + b" ")
        assert folder_digest(changed) != found.digest, name


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(UserError, match="none"):
        open_model(str(tmp_path / "none"), config(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "url", ["http://host:8000", "http://host:8000/", "http://host:8000/v1", "http://host:8000/v1/"]
)
def test_endpoints(tmp_path, url):
    assert open_model(url, config(tmp_path), tmp_path) == Endpoint("http://host:8000", "policy")
    assert open_model(url, config(tmp_path), tmp_path, "other") == Endpoint("http://host:8000", "other")


@pytest.mark.parametrize("text", ["ftp://host", "models:/policy", "models:/policy/3", "s3://bucket/model"])
def test_what_names_nothing(tmp_path, text):
    with pytest.raises(UserError, match="neither models:/NAME@ALIAS nor http"):
        open_model(text, config(tmp_path), tmp_path)


def test_a_model_id_is_for_endpoints(tmp_path):
    with pytest.raises(UserError, match="--model-id names a model of an endpoint"):
        open_model(str(TINY), config(tmp_path), tmp_path, "policy")


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A registry with the tiny model as policy@champion, stored under run `old`."""
    store = open_storage(config(tmp_path).storage)
    store.put_folder(TINY, "old/snapshots/v4")
    version = SimpleNamespace(uri=store.uri("old/snapshots/v4"), digest=DIGEST, version=VERSION, run_id="trained")
    opened = []

    class Stub:
        def resolve(self, alias):
            return {"champion": version}.get(alias)

    def stub(uri, name, deadline_s=120):
        opened.append((uri, name))
        return Stub()

    monkeypatch.setattr(Registry, "open", stub)
    return SimpleNamespace(version=version, opened=opened)


@pytest.mark.parametrize("text", ["policy@champion", "models:/policy@champion"])
def test_a_registered_version_is_fetched_and_compared(tmp_path, registry, text):
    cfg = config(tmp_path)
    found = open_model(text, cfg, tmp_path / "models")
    assert (found.name, found.digest, found.verified, found.run_id) == ("policy@champion", DIGEST, True, "trained")
    assert found.folder == str(tmp_path / "models" / f"v{VERSION}-{DIGEST[:12]}")
    assert registry.opened == [(f"sqlite:///{tmp_path}/m.db", "policy")]
    assert open_model(text, cfg, tmp_path / "models") == found  # what is there is not fetched again


def test_another_storage_may_hold_it(tmp_path, registry):
    elsewhere = config(tmp_path / "elsewhere")
    assert open_model("policy@champion", elsewhere, tmp_path / "models").digest == DIGEST


def test_an_alias_that_points_at_nothing(tmp_path, registry):
    with pytest.raises(UserError, match="'policy' has no version with alias 'candidate' in sqlite"):
        open_model("policy@candidate", config(tmp_path), tmp_path)


def test_other_weights_than_the_registry_names(tmp_path, registry):
    registry.version.digest = "0" * 64
    told = f"with weights {DIGEST[:12]}, the registry names version {VERSION} with 000000000000"
    with pytest.raises(UserError, match=told):
        open_model("policy@champion", config(tmp_path), tmp_path / "models")


def test_a_stored_snapshot_that_is_damaged(tmp_path, registry):
    path = tmp_path / "storage" / "old" / "snapshots" / "v4" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="damaged"):
        open_model("policy@champion", config(tmp_path), tmp_path / "models")


def test_a_store_that_does_not_answer(tmp_path, monkeypatch):
    def fail(uri, name):
        raise TrackingError("MLflow registry 'policy': cannot read the aliases: no route")

    monkeypatch.setattr(Registry, "open", fail)
    with pytest.raises(UserError, match="policy@champion cannot be looked up: .*no route"):
        open_model("policy@champion", config(tmp_path), tmp_path)


def test_an_endpoint_that_serves_the_model():
    with serving(FakeEndpoint([])) as url:
        probe(Endpoint(url, "policy"), 10)


@pytest.mark.parametrize(
    "options,reason",
    [
        ({"models": ("other", "third")}, "serves no model 'policy'; known: other, third"),
        ({"models": ("polic",)}, "did you mean 'polic'"),
        ({"models": ()}, "serves no model 'policy'"),
        ({"models": None}, "does not list models as OpenAI's API does"),
        ({"status": 404}, "answers with status 404"),
        ({"status": 401}, "answers with status 401; set DECS_API_KEY"),
    ],
)
def test_an_endpoint_that_does_not(options, reason):
    with serving(FakeEndpoint([]), **options) as url, pytest.raises(UserError, match=reason):
        probe(Endpoint(url, "policy"), 10)


def test_the_key_of_the_environment_is_sent(monkeypatch):
    problem = load_problems(load_config(None, []).problems.held_out, 0)[0]

    async def asked(url):
        client = EndpointClient(url, "policy", Evaluation(), 8)
        try:
            return await client.ask_all([problem], 0)
        finally:
            await client.close()

    with serving(FakeEndpoint([problem]), key="secret") as url:
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        with pytest.raises(UserError, match="401"):
            probe(Endpoint(url, "policy"), 10)
        assert "401" in asyncio.run(asked(url)).failures[0]
        monkeypatch.setenv(KEY_VARIABLE, "secret")
        probe(Endpoint(url, "policy"), 10)
        assert asyncio.run(asked(url)).failures == []


def test_nobody_at_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UserError, match=f"no endpoint answers at {url}/v1/models within 5 s .*ConnectError"):
        probe(Endpoint(url, "policy"), 5)
    with pytest.raises(UserError, match="no endpoint answers|give an endpoint's address"):
        probe(Endpoint("http://", "policy"), 5)


def test_an_endpoint_that_is_silent_is_given_up_at_the_deadline():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        taken = []
        threading.Thread(target=lambda: taken.append(silent.accept()), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(UserError, match="within 0.5 s .*Timeout"):
            probe(Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", "policy"), 0.5)
        assert time.monotonic() - began < 20
