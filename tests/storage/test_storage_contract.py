"""What every back end does, and what it refuses."""

import json
import shutil

import pytest

from pipeline.storage import IncompleteFolder, KeyMissing, StorageError
from pipeline.storage.complete import FolderManifest


def same(left, right):
    return FolderManifest.of(left) == FolderManifest.of(right)


def test_bytes(store):
    assert not store.exists("a/b") and store.list() == store.list("a") == []
    store.put_bytes("a/b", b"one")
    store.put_bytes("a/b", b"two")
    store.put_bytes("ab", b"")
    assert store.get_bytes("a/b") == b"two" and store.get_bytes("ab") == b""
    assert store.exists("a/b") and not store.exists("a")
    assert store.list() == ["a/b", "ab"] and store.list("a") == ["a/b"]
    assert store.uri("a/b").endswith("/a/b")
    with pytest.raises(KeyMissing):
        store.get_bytes("a/c")


def test_folder_round_trip(store, local, tmp_path):
    store.put_folder(local, "run/v1")
    assert store.is_complete("run/v1") and store.folders("run") == ["v1"]
    target = store.fetch_folder("run/v1", tmp_path / "cache" / "v1")
    assert same(target, local)
    assert [p.name for p in target.parent.iterdir()] == ["v1"]
    assert store.fetch_folder("run/v1", target) == target
    (target / "model.bin").write_bytes(b"edited")
    with pytest.raises(StorageError, match="already exists with other content"):
        store.fetch_folder("run/v1", target)


def test_storing_again_is_harmless_but_other_content_needs_leave(store, local):
    store.put_folder(local, "v1")
    store.put_folder(local, "v1")
    (local / "empty").write_bytes(b"no longer")
    with pytest.raises(StorageError, match="already holds a complete folder with other content"):
        store.put_folder(local, "v1")
    store.put_folder(local, "v1", overwrite=True)
    assert store.get_bytes("v1/empty") == b"no longer" and store.is_complete("v1")


def test_latest_follows_complete_folders_only(store, local):
    assert store.latest("run") is None
    store.put_folder(local, "run/v1")
    store.set_latest("run", "v1")
    for name in ("model.bin", "rank0/optim.bin", "empty"):  # all files, but the manifest
        store.put_bytes(f"run/v2/{name}", (local / name).read_bytes())
    assert not store.is_complete("run/v2") and store.folders("run") == ["v1"]
    with pytest.raises(IncompleteFolder, match="v2.* has no _complete.json"):
        store.set_latest("run", "v2")
    with pytest.raises(IncompleteFolder, match="v3"):
        store.set_latest("run", "v3")
    assert store.latest("run") == "v1"
    store.put_folder(local, "run/v2")
    store.set_latest("run", "v2")
    assert store.latest("run") == "v2"


def test_a_folder_that_lost_a_file_is_not_latest(store, local, tmp_path):
    store.put_folder(local, "run/v1")
    store.set_latest("run", "v1")
    store._delete("run/v1/rank0/optim.bin")
    assert not store.is_complete("run/v1") and store.folders("run") == []
    for attempt in (lambda: store.latest("run"), lambda: store.fetch_folder("run/v1", tmp_path / "out")):
        with pytest.raises(IncompleteFolder, match="rank0/optim.bin is missing"):
            attempt()
    store.put_folder(local, "run/v1")  # storing again mends it
    assert store.latest("run") == "v1"


def test_a_file_that_is_short_or_has_a_flipped_byte(store, local, tmp_path):
    store.put_folder(local, "v1")
    good = store.get_bytes("v1/model.bin")
    store.put_bytes("v1/model.bin", good[:-1])
    assert not store.is_complete("v1")
    with pytest.raises(IncompleteFolder, match="model.bin has 5119 bytes, its manifest states 5120"):
        store.fetch_folder("v1", tmp_path / "out")
    store.put_bytes("v1/model.bin", good[:9] + b"\xff" + good[10:])
    with pytest.raises(IncompleteFolder, match="model.bin is damaged: its sha256"):
        store.fetch_folder("v1", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_a_cut_or_edited_manifest(store, local, tmp_path):
    store.put_folder(local, "v1")
    data = store.get_bytes("v1/_complete.json")
    store._write("v1/_complete.json", data[: len(data) // 2])
    with pytest.raises(IncompleteFolder, match="cannot be read"):
        store.fetch_folder("v1", tmp_path / "out")
    store._write("v1/_complete.json", data.replace(b"5120", b"5121"))
    with pytest.raises(IncompleteFolder, match="own checksum"):
        store.fetch_folder("v1", tmp_path / "out")
    assert not store.is_complete("v1")


def test_a_manifest_cannot_write_outside_the_folder(store, local, tmp_path):
    store.put_folder(local, "v1")
    raw = json.loads(store.get_bytes("v1/_complete.json"))
    raw["files"]["../../escaped"] = raw["files"]["empty"]
    store._write("v1/_complete.json", json.dumps(raw).encode())
    with pytest.raises(IncompleteFolder, match="escaped"):
        store.fetch_folder("v1", tmp_path / "out")


def test_an_upload_that_dies_leaves_no_complete_folder(store, local, monkeypatch):
    def dies(path, key):
        if path.name == "optim.bin":
            raise StorageError("gone")
        upload(path, key)

    upload = store._upload
    monkeypatch.setattr(store, "_upload", dies)
    with pytest.raises(StorageError, match="gone"):
        store.put_folder(local, "v1")
    assert not store.is_complete("v1") and "v1/_complete.json" not in store.list("v1")
    monkeypatch.undo()


def test_a_folder_that_changes_meanwhile_is_not_complete(store, local, monkeypatch):
    upload = store._upload

    def changes(path, key):
        upload(path, key)
        (local / "late").write_bytes(b"x")

    monkeypatch.setattr(store, "_upload", changes)
    with pytest.raises(StorageError, match="changed while it was being stored"):
        store.put_folder(local, "v1")
    assert not store.is_complete("v1")
    monkeypatch.undo()


def test_a_write_that_vanished_is_noticed(store, local, monkeypatch):
    monkeypatch.setattr(store, "_upload", lambda path, key: None)
    with pytest.raises(IncompleteFolder, match="is missing"):
        store.put_folder(local, "v1")
    assert not store.is_complete("v1")
    monkeypatch.undo()


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "a/../b", "..", ".", "a//b", "a/", "a\\b", "a\nb", "a\0b", "a/.part-1", "x" * 901]
)
def test_keys_that_name_nothing_or_something_outside(store, local, tmp_path, key):
    calls = [
        lambda: store.put_bytes(key, b""),
        lambda: store.get_bytes(key),
        lambda: store.exists(key),
        lambda: store.put_folder(local, key),
        lambda: store.fetch_folder(key, tmp_path / "out"),
        lambda: store.set_latest("run", key),
        lambda: store.latest(key),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="storage key"):
            call()


@pytest.mark.parametrize("key", ["v1/_complete.json", "run/_latest"])
def test_marks_cannot_be_set_by_hand(store, key):
    with pytest.raises(StorageError, match="kept for marking"):
        store.put_bytes(key, b"{}")


def test_local_folders_that_cannot_be_stored(store, local, tmp_path):
    with pytest.raises(StorageError, match="is not a folder"):
        store.put_folder(tmp_path / "nowhere", "v1")
    (tmp_path / "hollow" / "inner").mkdir(parents=True)
    with pytest.raises(StorageError, match="holds no files"):
        store.put_folder(tmp_path / "hollow", "v1")
    (local / "link").symlink_to(local / "rank0")
    with pytest.raises(StorageError, match="link to a folder"):
        store.put_folder(local, "v1")
    (local / "link").unlink()
    shutil.copy(local / "empty", local / "_complete.json")
    with pytest.raises(StorageError, match="kept for marking"):
        store.put_folder(local, "v1")
