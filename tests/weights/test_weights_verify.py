"""Everything that can be wrong with a snapshot is found, and named, before use."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.weights import Manifest, SnapshotError, read_manifest, verify, write_snapshot
from tests.weights.model_folders import make_folder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("verify")
    base, model = make_folder(root / "base")
    options = {"step": 1, "parent": 0, "config_digest": "c", "serving_dtype": "float32", "model_dir": base}
    write_snapshot(root / "v1", model.state_dict(), version=1, **options)
    return root


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original / "v1", tmp_path / "v1")


def rewrite(folder, change):
    """Replace the weights by a changed copy, manifest untouched."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def restate(folder, **changes):
    """Change the manifest consistently, as a writer with other weights would."""
    raw = json.loads((folder / "manifest.json").read_text())
    entries = read_manifest(folder).tensors
    kept = {k: raw[k] for k in ("version", "parent", "step", "config_digest", "tied", "files")}
    (folder / "manifest.json").write_text(Manifest(**{**kept, "tensors": entries, **changes}).to_json())


def test_an_untouched_snapshot_passes(folder, original):
    manifest = read_manifest(folder)
    assert verify(folder) == verify(folder, expect=manifest.digest) == manifest
    assert verify(folder, expect=manifest, base=original / "base") == manifest


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "config.json", "tokenizer.json"])
def test_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(SnapshotError, match=f"{name}.* is missing|{name} is missing"):
        verify(folder)


@pytest.mark.parametrize("keep", [0, 4, 200, -1])
def test_truncated_weights(folder, keep):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:keep])
    with pytest.raises(SnapshotError, match="model.safetensors is truncated"):
        verify(folder)


def test_one_flipped_byte(folder):
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(SnapshotError, match=r"tensor 'model\.[a-z0-9._]+' does not have the values"):
        verify(folder)


def test_wrong_shape_dtype_missing_and_extra_tensor(folder):
    def reshaped(weights):
        weights["lm_head.weight"] = weights["lm_head.weight"].T.contiguous()

    rewrite(folder, reshaped)
    with pytest.raises(SnapshotError, match=r"'lm_head.weight' is float32 \[8, 16\], the manifest states"):
        verify(folder)
    rewrite(folder, lambda weights: weights.update({"lm_head.weight": torch.ones(16, 8, dtype=torch.bfloat16)}))
    with pytest.raises(SnapshotError, match="'lm_head.weight' is bfloat16"):
        verify(folder)
    rewrite(folder, lambda weights: weights.pop("lm_head.weight"))
    with pytest.raises(SnapshotError, match="'lm_head.weight' is missing"):
        verify(folder)


def test_extra_tensor(folder):
    rewrite(folder, lambda weights: weights.update(extra=torch.ones(1)))
    with pytest.raises(SnapshotError, match="'extra' .* not in the manifest"):
        verify(folder)


def test_nan_that_the_manifest_confirms_is_still_refused(folder):
    from pipeline.weights import describe

    rewrite(folder, lambda weights: weights["model.norm.weight"].fill_(float("nan")))
    weights = load_file(folder / "model.safetensors")
    restate(folder, tensors={name: describe(tensor) for name, tensor in weights.items()})
    with pytest.raises(SnapshotError, match="'model.norm.weight' holds NaN"):
        verify(folder)


def test_the_digest_that_was_asked_for(folder):
    with pytest.raises(SnapshotError, match="expected 0000"):
        verify(folder, expect="0" * 64)
    asked = read_manifest(folder)
    restate(folder, version=7)
    with pytest.raises(SnapshotError, match="holds version 7, expected 1"):
        verify(folder, expect=asked)
    entry = asked.tensors["lm_head.weight"]
    other = {**asked.tensors, "lm_head.weight": type(entry)(entry.dtype, entry.shape, "0" * 64)}
    with pytest.raises(SnapshotError, match="'lm_head.weight' .* not the expected one"):
        verify(folder, expect=Manifest(7, 0, 1, "c", other, {}, {}))


def test_another_model(folder, original, tmp_path):
    base = shutil.copytree(original / "base", tmp_path / "base")
    rewrite(base, lambda weights: weights.update({"model.norm.weight": torch.ones(9)}))
    with pytest.raises(SnapshotError, match=r"'model.norm.weight' has shape \[8\], .* has \[9\]"):
        verify(folder, base=base)
    rewrite(base, lambda weights: weights.pop("model.norm.weight"))
    with pytest.raises(SnapshotError, match="'model.norm.weight' is unknown"):
        verify(folder, base=base)
    rewrite(base, lambda weights: weights.update({"model.norm.weight": torch.ones(8), "more": torch.ones(1)}))
    with pytest.raises(SnapshotError, match="'more' .* is missing"):
        verify(folder, base=base)
    with pytest.raises(SnapshotError, match="no safetensors to compare"):
        verify(folder, base=tmp_path)


def test_another_tokenizer(folder, original, tmp_path):
    other, _ = make_folder(tmp_path / "other", words="f e d c b a")
    with pytest.raises(SnapshotError, match="tokenizer file tokenizer.json .* is not the one"):
        verify(folder, base=other)
    base = shutil.copytree(original / "base", tmp_path / "base")
    (base / "merges.txt").write_text("a b\n")
    with pytest.raises(SnapshotError, match="merges.txt is missing"):
        verify(folder, base=base)


def test_a_changed_config_is_found(folder):
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(SnapshotError, match="config.json is not the file"):
        verify(folder)


@pytest.mark.parametrize("name", ["model-00002.safetensors", "pytorch_model.bin", "model.safetensors.index.json"])
def test_stray_weights_that_a_server_might_load(folder, name):
    (folder / name).write_bytes(b"")
    with pytest.raises(SnapshotError, match=f"{name} holds weights"):
        verify(folder)
