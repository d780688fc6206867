"""The identity of a snapshot."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline.weights import Manifest, SnapshotError, TensorEntry, read_manifest

ENTRY = TensorEntry("bfloat16", (2, 3), "ab" * 32)
MANIFEST = Manifest(3, 2, 30, "cd" * 32, {"b": ENTRY, "a": ENTRY}, {"head": "a"}, {"config.json": "ef" * 32})


def test_json_round_trip():
    assert Manifest.from_json(MANIFEST.to_json()) == MANIFEST


def test_digest_covers_the_tensors_but_neither_version_nor_order():
    same = replace(MANIFEST, version=9, parent=None, step=1, tensors={"a": ENTRY, "b": ENTRY})
    assert same.digest == MANIFEST.digest and len(MANIFEST.digest) == 64
    for change in ({"dtype": "float32"}, {"shape": (3, 2)}, {"sha256": "00" * 32}):
        assert replace(MANIFEST, tensors={"a": ENTRY, "b": replace(ENTRY, **change)}).digest != MANIFEST.digest
    assert replace(MANIFEST, tensors={"a": ENTRY, "c": ENTRY}).digest != MANIFEST.digest


def test_a_damaged_manifest_is_found():
    text = MANIFEST.to_json()
    with pytest.raises(SnapshotError, match="entries give"):
        Manifest.from_json(text.replace("ab" * 32, "ab" * 31 + "aa", 1))
    for broken in (text[:-10], "[]", "{}", json.dumps({"tensors": {"a": 1}})):
        with pytest.raises(SnapshotError, match="not a snapshot manifest"):
            Manifest.from_json(broken)
    with pytest.raises(SnapshotError, match="format 7"):
        Manifest.from_json(text.replace('"format": 1', '"format": 7'))


def test_a_folder_without_manifest_is_no_snapshot(tmp_path):
    with pytest.raises(SnapshotError, match="manifest.json is missing"):
        read_manifest(tmp_path)
    with pytest.raises(SnapshotError, match="manifest.json is missing"):
        read_manifest(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SnapshotError, match="not text"):
        read_manifest(tmp_path)


def test_manifests_can_be_read_without_torch():
    code = "import sys; from pipeline.weights import Snapshot, read_manifest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
