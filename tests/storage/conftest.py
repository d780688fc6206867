"""A folder store and, for slow tests, an S3 store on a server in this process."""

import uuid

import pytest

from pipeline.storage import LocalStore


@pytest.fixture
def aws(monkeypatch):
    """Credentials that no real service knows, and no settings from outside."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def s3_endpoint():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_store(aws, s3_endpoint):
    from pipeline.storage.s3 import S3Store

    store = S3Store(f"bucket-{uuid.uuid4().hex[:8]}", "some/prefix", s3_endpoint)
    store.client.create_bucket(Bucket=store.bucket)
    return store


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def store(request, tmp_path):
    return LocalStore(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("s3_store")


@pytest.fixture
def local(tmp_path):
    """A folder with a nested, an empty and a plain file."""
    folder = tmp_path / "local"
    (folder / "rank0").mkdir(parents=True)
    (folder / "model.bin").write_bytes(bytes(range(256)) * 20)
    (folder / "rank0" / "optim.bin").write_bytes(b"moments")
    (folder / "empty").write_bytes(b"")
    return folder
