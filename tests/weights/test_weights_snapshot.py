"""Snapshots of real models: complete, exact, written once."""

import json
import threading

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.weights import SnapshotError, read_tensors, verify, write_snapshot
from tests.weights.model_folders import make_folder, make_model


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def trained(request, tmp_path):
    base, model = make_folder(tmp_path / "base", tied=request.param)
    with torch.no_grad():
        model.model.embed_tokens.weight.add_(1.0)
    return base, model, request.param


def write(folder, state, base, version=1, dtype="bfloat16", **changes):
    options = {"step": 10, "parent": 0, "config_digest": "c" * 64} | changes
    return write_snapshot(folder, state, version=version, serving_dtype=dtype, model_dir=base, **options)


def test_engine_side_equals_the_trainer_after_the_cast(trained, tmp_path):
    base, model, tied = trained
    snapshot = write(tmp_path / "v1", model.state_dict(), base)
    engine = make_model(tied, seed=5).to(torch.bfloat16)
    head_before = engine.lm_head.weight.clone()
    loaded = dict(read_tensors(tmp_path / "v1" / "model.safetensors"))
    assert ("lm_head.weight" in loaded) is not tied
    missing, unexpected = engine.load_state_dict(loaded, strict=False)
    assert missing == (["lm_head.weight"] if tied else []) and not unexpected
    assert loaded.keys() == snapshot.manifest.tensors.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(engine.state_dict()[name], value.to(torch.bfloat16)), name
    assert not torch.equal(engine.lm_head.weight, head_before)
    assert torch.equal(engine.lm_head.weight, engine.model.embed_tokens.weight) is tied


def test_the_folder_is_complete_for_any_server(trained, tmp_path):
    base, model, _ = trained
    (base / "training_args.bin").write_bytes(b"not to be copied")
    folder = tmp_path / "runs" / "v1"
    write(folder, model.state_dict(), base)
    again = AutoModelForCausalLM.from_pretrained(folder)
    assert again.dtype == torch.bfloat16
    assert torch.equal(again.lm_head.weight, model.lm_head.weight.to(torch.bfloat16))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a b"}], tokenize=False) == "a b"
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert (folder / "generation_config.json").exists() and not (folder / "training_args.bin").exists()
    assert [p.name for p in folder.parent.iterdir()] == ["v1"]
    assert verify(folder, base=base).version == 1


def test_wrapper_prefixes_are_mapped(trained, tmp_path):
    base, model, _ = trained
    plain = write(tmp_path / "a", model.state_dict(), base)
    wrapped = write(tmp_path / "b", {"module." + n: v for n, v in model.state_dict().items()}, base, version=2)
    assert plain.manifest.digest == wrapped.manifest.digest


def test_writing_twice_is_harmless_and_a_version_never_changes(trained, tmp_path):
    base, model, _ = trained
    first = write(tmp_path / "v1", model.state_dict(), base)
    stamp = (tmp_path / "v1" / "model.safetensors").stat().st_mtime_ns
    assert write(tmp_path / "v1", model.state_dict(), base) == first
    assert (tmp_path / "v1" / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(SnapshotError, match="holds version 1, not 2"):
        write(tmp_path / "v1", model.state_dict(), base, version=2)
    other = {name: value + 1 for name, value in model.state_dict().items()}
    with pytest.raises(SnapshotError, match="a version never changes"):
        write(tmp_path / "v1", other, base)
    assert verify(tmp_path / "v1") == first.manifest


def test_two_writers_of_the_same_version_agree(trained, tmp_path):
    base, model, _ = trained
    found = []

    def writer():
        found.append(write(tmp_path / "v1", model.state_dict(), base))

    threads = [threading.Thread(target=writer) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3 and found[0] == found[1] == found[2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base", "v1"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_not_finite_are_refused_and_leave_nothing(tmp_path, bad):
    base, model = make_folder(tmp_path / "base")
    state = model.state_dict()
    state["model.norm.weight"][3] = bad
    with pytest.raises(SnapshotError, match="'model.norm.weight' holds NaN"):
        write(tmp_path / "v1", state, base)
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


def test_a_value_too_large_for_the_serving_dtype_is_refused(tmp_path):
    base, model = make_folder(tmp_path / "base")
    state = model.state_dict()
    state["model.norm.weight"][0] = 1e6
    with pytest.raises(SnapshotError, match="'model.norm.weight' holds NaN or infinity"):
        write(tmp_path / "v1", state, base, dtype="float16")


def test_a_head_that_ought_to_be_tied_but_differs_is_refused(tmp_path):
    base, model = make_folder(tmp_path / "base", tied=True)
    state = dict(model.state_dict())
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    with pytest.raises(SnapshotError, match="ties 'lm_head.weight'"):
        write(tmp_path / "v1", state, base)


def test_states_that_do_not_fit_the_model_folder_are_refused(tmp_path):
    base, model = make_folder(tmp_path / "base")
    state = model.state_dict()
    lacking = {name: value for name, value in state.items() if name != "model.norm.weight"}
    with pytest.raises(SnapshotError, match="'model.norm.weight' is missing"):
        write(tmp_path / "v1", lacking, base)
    with pytest.raises(SnapshotError, match="'model.norm.weight' has no values"):
        write(tmp_path / "v1", {**state, "model.norm.weight": torch.ones(0)}, base)
    with pytest.raises(SnapshotError, match="'extra' is unknown"):
        write(tmp_path / "v1", {**state, "extra": torch.ones(1)}, base)
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


@pytest.mark.parametrize(
    "changes,match",
    [({"version": -1}, "version -1"), ({"parent": 1}, "parent 1"), ({"dtype": "int8"}, "serving dtype 'int8'")],
)
def test_senseless_identities_are_refused(tmp_path, changes, match):
    base, model = make_folder(tmp_path / "base")
    with pytest.raises(SnapshotError, match=match):
        write(tmp_path / "v1", model.state_dict(), base, **changes)


def test_model_folders_that_lack_something_are_refused(tmp_path):
    base, model = make_folder(tmp_path / "base")
    (base / "tokenizer.json").unlink()
    with pytest.raises(SnapshotError, match="no tokenizer"):
        write(tmp_path / "v1", model.state_dict(), base)
    (base / "config.json").write_text("{")
    with pytest.raises(SnapshotError, match="not JSON"):
        write(tmp_path / "v1", model.state_dict(), base)
    (base / "config.json").unlink()
    with pytest.raises(SnapshotError, match="config.json is missing"):
        write(tmp_path / "v1", model.state_dict(), base)
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


def test_a_model_folder_without_weights_gives_the_first_snapshot(tmp_path):
    base, model = make_folder(tmp_path / "base", tied=True)
    (base / "model.safetensors").unlink()
    manifest = write(tmp_path / "v0", model.state_dict(), base, version=0, parent=None).manifest
    assert manifest.tied == {"lm_head.weight": "model.embed_tokens.weight"} and manifest.parent is None
