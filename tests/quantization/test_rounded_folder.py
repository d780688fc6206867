"""A rounded folder: whole, named by its digests, and exactly what the rounded model computes."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.config import UserError
from pipeline.quantization.folder import (
    Identity,
    check_fit,
    folder_tensors,
    linear_layers,
    load_rounded,
    write_rounded,
)
from pipeline.quantization.grid import Grid
from pipeline.quantization.modules import difference, divergence, on_grid, put_on_grid, rounded_inputs
from pipeline.quantization.stored import stored_quantisation
from pipeline.weights import SnapshotError, model_reference, read_reference, verify
from pipeline.weights.tensors import folder_shapes
from tests.quantization.rounded_folders import make_base

IDS = torch.tensor([[1, 9, 17, 33, 2, 40, 8]])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


def whole(base):
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()


def write(folder, base, grid, tensors=None, **more):
    named = folder_tensors(base) if tensors is None else tensors
    layers = linear_layers(base)
    return write_rounded(folder, named, grid, model_dir=base, layers=layers, identity=Identity(3, 7, 2, "c"), **more)


@pytest.mark.parametrize("grid", [Grid(4, 32), Grid(2, 16), Grid(4, None)])
def test_the_stored_weights_compute_what_the_rounded_model_does(tmp_path, base, grid):
    model, read = whole(base), whole(base)
    write(tmp_path / "out", base, grid)
    load_rounded(read, tmp_path / "out", grid)
    with torch.inference_mode(), on_grid(model, grid):
        there, here = model(input_ids=IDS).logits, read(input_ids=IDS).logits
        assert torch.equal(there, here)
    with torch.inference_mode():
        assert not torch.equal(model(input_ids=IDS).logits, here)  # on_grid put the whole weights back


def test_the_folder_is_a_snapshot_with_its_own_identity(tmp_path, base):
    model = whole(base)
    with on_grid(model, Grid()):
        reference = model_reference(model)
    snapshot = write(tmp_path / "out", base, Grid(), reference=reference, report={"grid": "g"})
    manifest = verify(tmp_path / "out", snapshot.manifest.digest)
    assert (manifest.version, manifest.step, manifest.parent, manifest.config_digest) == (3, 7, 2, "c")
    assert manifest.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "quantization.json" in manifest.files and read_reference(tmp_path / "out") == reference
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert stored_quantisation(config).name == "INT4 (W4A16, groups of 32, compressed-tensors)"
    entries = manifest.tensors
    assert entries["model.layers.0.mlp.down_proj.weight_packed"].shape == (32, 8)
    assert entries["model.embed_tokens.weight"].dtype == "bfloat16" and "lm_head.weight" not in entries
    assert not any(name.endswith("proj.weight") for name in entries)
    with pytest.raises(SnapshotError, match="is unknown to the model in"):
        verify(tmp_path / "out", base=base)  # what an engine with whole weights asks before a swap


def test_weights_that_were_trained_are_rounded_from_their_own_values(tmp_path, base):
    """Not from the bfloat16 that the base folder holds: that would be another grid."""
    model = whole(base)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter.add_(1e-4 * torch.randn_like(parameter))
    put_on_grid(model, Grid())
    state = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
    write(tmp_path / "out", base, Grid(), state.items())
    read = whole(base)
    load_rounded(read, tmp_path / "out", Grid())
    with torch.inference_mode():
        assert torch.equal(model(input_ids=IDS).logits, read(input_ids=IDS).logits)


def test_equal_weights_have_equal_digests_and_a_folder_is_never_overwritten(tmp_path, base):
    first, second = write(tmp_path / "a", base, Grid()), write(tmp_path / "b", base, Grid())
    assert first.manifest.digest == second.manifest.digest != write(tmp_path / "c", base, Grid(3)).manifest.digest
    with pytest.raises(SnapshotError, match="exists"):
        write(tmp_path / "a", base, Grid())


def test_nothing_is_left_where_a_weight_is_not_finite(tmp_path, base):
    tensors = dict(folder_tensors(base))
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = torch.nan
    with pytest.raises(SnapshotError, match="up_proj.weight' holds NaN"):
        write(tmp_path / "out", base, Grid(), tensors.items())
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_named(base, tmp_path):
    shapes, layers = folder_shapes(base), linear_layers(base)
    assert len(layers) == 14 and "lm_head" not in layers
    check_fit(shapes, layers, Grid(4, 32), base)
    with pytest.raises(UserError, match="down_proj' has 64 inputs, no whole number of groups of 48"):
        check_fit(shapes, layers, Grid(4, 48), base)
    with pytest.raises(UserError, match="no tensor 'model.layers.9.x.weight'"):
        check_fit(shapes, ["model.layers.9.x"], Grid(), base)
    write(tmp_path / "out", base, Grid())
    with pytest.raises(UserError, match="holds INT4 .* weights already"):
        linear_layers(tmp_path / "out")
    with pytest.raises(SnapshotError, match="no rounded weights of layer"):
        load_rounded(whole(base), make_base(tmp_path / "other", num_hidden_layers=1), Grid())


def test_finer_grids_differ_less(base):
    model, sequences = whole(base), [IDS[0].tolist(), [3, 4, 5]]
    found = [difference(model, grid, sequences) for grid in (Grid(8, None), Grid(4, 32), Grid(2, 32))]
    assert [one.tokens for one in found] == [10, 10, 10]
    assert found[0].kl < found[1].kl < found[2].kl and found[0].logit_max < found[2].logit_max
    assert found[0].same_top >= found[2].same_top


def test_inputs_on_eight_bits_by_hand():
    inputs = torch.tensor([[127.0, 0.6, -50.4], [0.0, 0.0, 0.0]], requires_grad=True)
    there = rounded_inputs(inputs)
    assert torch.allclose(there, torch.tensor([[127.0, 1.0, -50.0], [0.0, 0.0, 0.0]]), atol=1e-5)
    there.sum().backward()
    assert inputs.grad.tolist() == [[1.0] * 3] * 2


def test_training_on_the_grid_comes_nearer_to_the_whole_model(base):
    """The trained thing in small: straight-through gradients of the divergence, against rounding to nearest."""
    teacher, student, grid = whole(base), whole(base), Grid(2, 32)
    put_on_grid(student, grid)
    ids = torch.randint(3, 48, (8, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = teacher(input_ids=ids).logits.flatten(0, 1)
    optimizer = torch.optim.AdamW([p for n, p in student.named_parameters() if "proj" in n], lr=3e-3, weight_decay=0)
    losses = []
    for _ in range(25):
        loss = divergence(wanted, student(input_ids=ids).logits.flatten(0, 1)).mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.6 * losses[0]


def test_divergence_by_hand():
    wanted, found = (
        torch.log(torch.tensor([[0.5, 0.5], [1.0, 3.0]])),
        torch.log(torch.tensor([[0.25, 0.75], [1.0, 3.0]])),
    )
    expected = 0.5 * torch.log(torch.tensor(2.0)) + 0.5 * torch.log(torch.tensor(2 / 3))
    assert torch.allclose(divergence(wanted, found), torch.tensor([expected, 0.0]), atol=1e-6)


def test_biases_stay_whole(tmp_path):
    base = make_base(tmp_path / "base", family="qwen2")
    model, read = whole(base), whole(base)
    with torch.no_grad():
        for part in (model, read):
            part.model.layers[0].self_attn.q_proj.bias.fill_(0.5)
    tensors = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
    snapshot = write(tmp_path / "out", base, Grid(), tensors.items())
    assert snapshot.manifest.tensors["model.layers.0.self_attn.q_proj.bias"].dtype == "bfloat16"
    load_rounded(read, tmp_path / "out", Grid())
    with torch.inference_mode(), on_grid(model, Grid()):
        assert torch.equal(model(input_ids=IDS).logits, read(input_ids=IDS).logits)
