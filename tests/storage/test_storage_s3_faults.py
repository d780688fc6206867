"""S3 answers that fail: retried within bounds, then a clear error. Replies are made in place of the network."""

import io
import socket
import threading
from types import SimpleNamespace

import pytest
from botocore.awsrequest import AWSResponse

from pipeline.config.schema import Storage
from pipeline.storage import KeyMissing, StorageError, StorageUnavailable, open_storage
from pipeline.storage.s3 import S3Store


class Body(io.BytesIO):
    def stream(self, **_):
        yield self.read()


class Replies:
    """Answers requests in turn from a list of (status, code or body); None lets one through; the last repeats."""

    def __init__(self, store, *replies):
        self.replies, self.count, self.lock = replies, 0, threading.Lock()
        store.client.meta.events.register_first("before-send.s3", self)

    def __call__(self, request, **_):
        with self.lock:
            reply = self.replies[min(self.count, len(self.replies) - 1)]
            self.count += 1
        if reply is None:
            return None
        status, content, *headers = reply
        if status >= 400:
            content = f"<Error><Code>{content}</Code><Message>no</Message></Error>".encode()
        length = {"Content-Length": str(len(content))} | (headers[0] if headers else {})
        return AWSResponse(request.url, status, length, Body(b"" if request.method == "HEAD" else content))


@pytest.fixture
def pauses(monkeypatch):
    """Seconds that boto would have waited between tries."""
    waited = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=waited.append))
    return waited


@pytest.fixture
def offline(aws):
    return S3Store("some-bucket", "p", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    "call",
    [
        lambda s, d: s.get_bytes("k"),
        lambda s, d: s.put_bytes("k", b"x"),
        lambda s, d: s.exists("k"),
        lambda s, d: s.list(),
        lambda s, d: s.put_folder(d, "k"),
        lambda s, d: s.fetch_folder("k", d / "x"),
        lambda s, d: s.latest("k"),
        lambda s, d: s.is_complete("k"),
    ],
)
def test_no_permission_and_unavailable_are_told_apart(offline, local, pauses, call):
    replies = Replies(offline, (403, "AccessDenied"))
    with pytest.raises(StorageError, match="no permission for s3://some-bucket/p/.*credentials") as error:
        call(offline, local)
    assert not isinstance(error.value, StorageUnavailable | KeyMissing)
    assert replies.count == 1 and pauses == []
    busy = S3Store("some-bucket", "p", "http://127.0.0.1:9")
    replies = Replies(busy, (503, "SlowDown"))
    with pytest.raises(StorageUnavailable, match="still answers 503"):
        call(busy, local)
    assert replies.count == 5 and len(pauses) == 4 and sum(pauses) <= 4 * 20


def test_a_missing_bucket_is_named(offline):
    Replies(offline, (404, "NoSuchBucket"))
    with pytest.raises(StorageError, match="bucket 'some-bucket' does not exist"):
        offline.put_bytes("k", b"x")


def test_an_endpoint_that_is_gone(aws, pauses):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = open_storage(Storage(uri="s3://some-bucket/p/", endpoint_url=f"http://127.0.0.1:{port}"))
    with pytest.raises(StorageUnavailable, match=f"no usable answer from http://127.0.0.1:{port}"):
        store.put_bytes("k", b"x")
    assert len(pauses) == 4


def test_a_body_that_ends_early_is_never_returned(offline):
    replies = Replies(offline, (200, b"four", {"Content-Length": "10", "ETag": '"e"'}))
    with pytest.raises(StorageUnavailable):
        offline.get_bytes("k")
    assert 2 < replies.count < 12


def test_no_credentials(aws, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="no S3 credentials"):
        S3Store("some-bucket", endpoint_url="http://127.0.0.1:9").put_bytes("k", b"x")


def test_a_senseless_endpoint(aws):
    with pytest.raises(StorageError, match="endpoint_url 'nonsense'"):
        S3Store("some-bucket", endpoint_url="nonsense")


@pytest.mark.slow
def test_busy_twice_then_well(s3_store, local, tmp_path, pauses):
    Replies(s3_store, (503, "SlowDown"), (500, "InternalError"), None)
    s3_store.put_folder(local, "v1")
    assert len(pauses) == 2 and s3_store.is_complete("v1")


@pytest.mark.slow
def test_a_multipart_upload_with_a_part_missing(s3_store, local, tmp_path):
    s3_store.put_folder(local, "run/v1")
    s3_store.set_latest("run", "v1")
    s3_store._delete("run/v1/model.bin")
    where = {"Bucket": s3_store.bucket, "Key": s3_store._name("run/v1/model.bin")}
    upload = s3_store.client.create_multipart_upload(**where)
    s3_store.client.upload_part(**where, UploadId=upload["UploadId"], PartNumber=1, Body=b"x" * (5 << 20))
    for attempt in (lambda: s3_store.latest("run"), lambda: s3_store.fetch_folder("run/v1", tmp_path / "out")):
        with pytest.raises(StorageError, match="model.bin is missing"):
            attempt()


@pytest.mark.slow
def test_a_part_that_fails_leaves_nothing_complete(s3_store, local, pauses):
    (local / "large.bin").write_bytes(b"x" * (17 << 20))
    count = []

    def part_two_fails(request, **_):
        if "partNumber=1" in request.url:
            count.append(1)
            return AWSResponse(request.url, 503, {}, Body(b"<Error><Code>SlowDown</Code></Error>"))
        return None

    s3_store.client.meta.events.register_first("before-send.s3.UploadPart", part_two_fails)
    with pytest.raises(StorageUnavailable):
        s3_store.put_folder(local, "v1")
    assert len(count) == 5 and not s3_store.is_complete("v1") and not s3_store.exists("v1/large.bin")
    s3_store.client.meta.events.unregister("before-send.s3.UploadPart", part_two_fails)
    s3_store.put_folder(local, "v1")
    assert s3_store.is_complete("v1")


@pytest.mark.slow
@pytest.mark.parametrize("checksums", ["when_supported", "when_required"])
def test_both_checksum_settings_work(s3_store, s3_endpoint, local, tmp_path, checksums):
    uri = f"s3://{s3_store.bucket}/some/prefix"
    store = open_storage(Storage(uri=uri, endpoint_url=s3_endpoint, checksums=checksums))
    store.put_folder(local, "v1")
    assert s3_store.list("v1") == ["v1/_complete.json", "v1/empty", "v1/model.bin", "v1/rank0/optim.bin"]
    store.fetch_folder("v1", tmp_path / "out")
