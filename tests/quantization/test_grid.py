"""Rounding and packing: values by hand, round trips for any weights."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.quantization.grid import Grid, compressed, decompressed, rounded, scales, through

GRIDS = [Grid(4, 32), Grid(4, 8), Grid(4, None), Grid(3, 16), Grid(2, 4), Grid(8, None)]


def test_four_bits_by_hand():
    """The largest of a group gets level 7.5, which is cut to 7; halves go to even."""
    weight = torch.tensor([[7.5, 1.4, -2.6, 0.5], [-15.0, 15.0, 3.0, -5.0]])
    grid = Grid(4, 4)
    assert scales(weight, grid).tolist() == [[1.0], [2.0]]
    assert rounded(weight, grid).tolist() == [[7.0, 1.0, -3.0, 0.0], [-16.0, 14.0, 4.0, -4.0]]
    stored = compressed(weight, grid)
    # level + 8 in four bits each, the first lowest: 15, 9, 5, 8 and 0, 15, 10, 6
    words = [15 + (9 << 4) + (5 << 8) + (8 << 12), 0 + (15 << 4) + (10 << 8) + (6 << 12)]
    assert stored["weight_packed"].tolist() == [[words[0]], [words[1]]]
    assert stored["weight_packed"].dtype == torch.int32 and stored["weight_scale"].dtype == torch.bfloat16
    assert stored["weight_shape"].tolist() == [2, 4]


def test_two_bits_lie_in_four():
    weight = torch.tensor([[1.5, -1.5, 0.4, -0.6]])
    grid = Grid(2, 4)
    assert rounded(weight, grid).tolist() == [[1.0, -2.0, 0.0, -1.0]]
    assert compressed(weight, grid)["weight_packed"].tolist() == [[9 + (6 << 4) + (8 << 8) + (7 << 12)]]


def test_eight_bits_are_whole_numbers_with_a_scale_an_output():
    weight = torch.tensor([[127.5, -3.2], [0.0, -255.0]])
    stored = compressed(weight, Grid(8, None))
    assert stored["weight"].tolist() == [[127, -3], [0, -128]] and stored["weight"].dtype == torch.int8
    assert stored["weight_scale"].tolist() == [[1.0], [2.0]]


@given(st.sampled_from(GRIDS), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**32 - 1), st.floats(1e-6, 1e4))
def test_what_is_stored_is_what_was_rounded(grid, outputs, groups, seed, size):
    weight = torch.randn(outputs, groups * (grid.group or 7), generator=torch.Generator().manual_seed(seed)) * size
    there = rounded(weight, grid)
    assert torch.equal(decompressed(compressed(weight, grid), grid), there)
    apart = scales(weight, grid).repeat_interleave(grid.group or weight.shape[1], 1)
    assert ((weight - there).abs() <= 0.55 * apart).all()
    assert (there / apart).unique().numel() <= 2**grid.bits


def test_zeros_stay_zeros():
    weight = torch.zeros(2, 32)
    assert torch.equal(decompressed(compressed(weight, Grid()), Grid()), weight)


def test_gradients_pass_the_rounding_unchanged():
    weight = torch.randn(3, 8, requires_grad=True)
    given_back = torch.randn(3, 8)
    (through(weight, Grid(3, 4)) * given_back).sum().backward()
    assert torch.equal(weight.grad, given_back)


def test_the_config_is_what_the_package_reads():
    from compressed_tensors.quantization import QuantizationConfig

    told = QuantizationConfig.model_validate(Grid(2, 32).config(["lm_head"]))
    weights = told.config_groups["group_0"].weights
    assert (told.format, told.ignore, weights.num_bits, weights.group_size) == ("pack-quantized", ["lm_head"], 4, 32)
    eight = QuantizationConfig.model_validate(Grid(8, None).config([])).config_groups["group_0"]
    assert (eight.weights.strategy, eight.input_activations.dynamic, eight.format) == ("channel", True, "int-quantized")


@pytest.mark.parametrize(("bits", "group"), [(1, 32), (5, 32), (16, None), (8, 32), (4, 1)])
def test_no_such_grid(bits, group):
    with pytest.raises(ValueError, match="no gr"):
        Grid(bits, group)


def test_inputs_that_are_no_whole_number_of_groups():
    with pytest.raises(ValueError, match="48 inputs are no whole number of groups of 32"):
        scales(torch.ones(2, 48), Grid())
