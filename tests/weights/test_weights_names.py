"""Parameter names between trainer and engine: mapped, or refused by name; never skipped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.weights import SnapshotError, canonical, check_names, map_names

EXPECTED = {"model.norm.weight": (2,), "model.layers.0.q.weight": (2, 2)}


def match(tensors, expected):
    mapped = map_names(tensors, expected)
    return mapped, check_names(mapped, expected)


def tensors(**changes):
    return {name: torch.ones(shape) for name, shape in EXPECTED.items()} | changes


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.q.weight",
        "module.model.layers.0.q.weight",
        "module.module.model.layers.0.q.weight",
        "base_model.model.model.layers.0.q.weight",
        "base_model.model.model.layers.0.q.base_layer.weight",
        "module.base_model.model.model.layers.0.q.base_layer.weight",
        "_orig_mod.module.model.layers.0.q.weight",
    ],
)
def test_known_wrappers_are_mapped(name):
    assert canonical(name) == "model.layers.0.q.weight"
    matched, count = match({name: torch.ones(2, 2), "module.model.norm.weight": torch.ones(2)}, EXPECTED)
    assert set(matched) == set(EXPECTED) and count == 2


def test_a_name_that_the_model_itself_uses_is_left_alone():
    assert set(match({"module.w": torch.ones(1)}, {"module.w": (1,)})[0]) == {"module.w"}


@given(st.lists(st.sampled_from(["module.", "base_model.model.", "_orig_mod."]), max_size=4))
def test_canonical_is_its_own_fixed_point(prefixes):
    once = canonical("".join(prefixes) + "model.norm.weight")
    assert once == canonical(once) == "model.norm.weight"


def placeholder():
    empty = torch.ones(0)
    empty.ds_shape, empty.ds_numel = torch.Size([2, 2]), 4
    return empty


@pytest.mark.parametrize(
    "change,message",
    [
        ({"model.layers.0.q.weight": placeholder()}, r"'model.layers.0.q.weight' has no values .*\[2, 2\]; gather"),
        ({"model.norm.weight": torch.ones(0)}, "'model.norm.weight' has no values"),
        ({"model.norm.weight": torch.ones(2, device="meta")}, "'model.norm.weight' has no values"),
        ({"model.norm.weight": torch.ones(3)}, r"'model.norm.weight' has shape \[3\], the model needs \[2\]"),
        ({"model.norm.wieght": torch.ones(2)}, "'model.norm.wieght' is unknown.*did you mean 'model.norm.weight'"),
        ({"model.layers.0.q.lora_A.weight": torch.ones(2)}, "lora_A.weight' is unknown"),
        ({"module.model.norm.weight": torch.ones(2)}, "both map to 'model.norm.weight'"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(SnapshotError, match=message):
        match(tensors(**change), EXPECTED)


def test_missing_names_are_named():
    with pytest.raises(SnapshotError, match="'model.layers.0.q.weight' is missing"):
        match({"model.norm.weight": torch.ones(2)}, EXPECTED)
    with pytest.raises(SnapshotError, match="and 1 more is missing"):
        match({}, EXPECTED)


def test_mapping_without_a_model_strips_prefixes_only():
    assert set(map_names({"module.a": torch.ones(1), "b": torch.ones(1)}, {})) == {"a", "b"}
