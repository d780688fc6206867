"""What is particular to the folder back end, and which back end an address opens."""

import errno
import subprocess
import sys

import pytest

from pipeline.config import UserError
from pipeline.config.schema import Storage
from pipeline.storage import KeyMissing, LocalStore, StorageError, StorageUnavailable, open_storage


def test_unfinished_files_are_invisible_and_cleared(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    (tmp_path / ".part-dead").write_bytes(b"left by a killed writer")
    assert store.list() == []

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(StorageUnavailable, match="No space left"):
        store.put_bytes("a", b"x")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == [".part-dead"]


def test_file_errors_name_the_place(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.put_bytes("a", b"x")
    with pytest.raises(StorageError, match="file where a folder is needed"):
        store.put_bytes("a/b", b"x")
    store.put_bytes("d/e", b"x")
    with pytest.raises(KeyMissing):
        store.get_bytes("d")

    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)
    with pytest.raises(StorageError, match="no permission for .*/a"):
        store.get_bytes("a")


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_storage(Storage(uri="runs"))
    monkeypatch.chdir("/")
    assert store.uri("a") == str(tmp_path / "runs" / "a")
    refused = {"gs://b/c": "scheme 'gs'", "s3://": "names no bucket", "s3:///x": "names no bucket", "": "is empty"}
    for uri, match in refused.items():
        with pytest.raises(UserError, match=match):
            open_storage(Storage(uri=uri))
    with pytest.raises(UserError, match="endpoint_url does nothing"):
        open_storage(Storage(uri="runs", endpoint_url="http://127.0.0.1:1"))


def test_a_folder_store_needs_no_boto3():
    code = "import sys; from pipeline.storage import open_storage; sys.exit('boto3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
