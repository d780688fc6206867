"""The grids weights are rounded to, and the rounding: pure functions on tensors.

Levels, scales and packing are those of the compressed-tensors package, which wrote the format that vLLM reads. The same
rounding serves a finished model and a training (`through`): what was trained is what is stored.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

PACKED, PLAIN = "pack-quantized", "int-quantized"
WORD_BITS = 4  # of a packed weight: vLLM's kernels read no narrower ones in this format
W8A8_BITS = 8  # a scale an output, and activations are rounded too


@dataclass(frozen=True)
class Grid:
    """Whole numbers of `bits` bits, symmetric around 0, times a scale for each `group` inputs of an output.

    `group` None: one scale an output. 8 bits stand for W8A8: weights with one scale an output, and activations rounded
    for each token while serving. 4, 3 and 2 bits are weights alone (W4A16), packed eight to a 32-bit word: fewer than
    4 save no room, they only round more.
    """

    bits: int = 4
    group: int | None = 32

    def __post_init__(self) -> None:
        if self.bits not in (2, 3, 4, W8A8_BITS):
            raise ValueError(f"no grid of {self.bits} bits; 2, 3, 4 and 8 are there")
        if self.group is not None and (self.group < 2 or self.bits == W8A8_BITS):
            raise ValueError(f"no groups of {self.group} with {self.bits} bits; 8 bits have one scale an output")

    @property
    def name(self) -> str:
        """As in "W4A16, groups of 32"."""
        grouped = f"groups of {self.group}" if self.group else "a scale a row"
        return f"W{self.bits}A{8 if self.bits == W8A8_BITS else 16}, {grouped}"

    @property
    def format(self) -> str:
        """The package's name of the way weights lie in the file."""
        return PLAIN if self.bits == W8A8_BITS else PACKED

    @property
    def scale_type(self) -> torch.dtype:
        """Of stored scales. vLLM casts those of packed weights to its engine's type: in bfloat16 they survive that."""
        return torch.float32 if self.format == PLAIN else torch.bfloat16

    @cached_property
    def args(self) -> "QuantizationArgs":
        """Of the weights, for the package."""
        return self._args(self.bits)

    def _args(self, bits: int) -> "QuantizationArgs":
        from compressed_tensors.quantization import QuantizationArgs

        strategy = "group" if self.group else "channel"
        return QuantizationArgs(
            num_bits=bits, strategy=strategy, group_size=self.group, symmetric=True, scale_dtype=self.scale_type
        )

    @cached_property
    def scheme(self) -> "QuantizationScheme":
        """Of every linear layer as it is stored, for the package."""
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

        tokens = QuantizationArgs(num_bits=8, strategy="token", symmetric=True, dynamic=True)
        activations = tokens if self.format == PLAIN else None
        stored = self._args(max(self.bits, WORD_BITS))
        return QuantizationScheme(targets=["Linear"], weights=stored, input_activations=activations)

    def config(self, ignore: list[str]) -> dict[str, Any]:
        """`quantization_config` of a model's config.json; the modules in `ignore` keep their weights."""
        from compressed_tensors.quantization import QuantizationConfig

        config = QuantizationConfig(
            config_groups={"group_0": self.scheme.model_copy(update={"format": self.format})},
            format=self.format,
            ignore=ignore,
            quantization_status="compressed",
        )
        return config.model_dump(mode="json", exclude_none=True)


def scales(weight: Tensor, grid: Grid) -> Tensor:
    """Scales [out, inputs / group] (float32, values of `scale_type`) of `weight` [out, in]: the largest of a group gets
    the outermost level. ValueError where the inputs are no whole number of groups."""
    from compressed_tensors.quantization.utils import calculate_qparams

    inputs = weight.shape[1]
    if inputs % (grid.group or 1):
        raise ValueError(f"{inputs} inputs are no whole number of groups of {grid.group}")
    grouped = weight.detach().float().unflatten(-1, (-1, grid.group or inputs))
    found, _ = calculate_qparams(grouped.amin(-1), grouped.amax(-1), grid.args)
    return found


def rounded(weight: Tensor, grid: Grid) -> Tensor:
    """`weight` [out, in] on the grid, float32: exactly what `compressed` stores."""
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize

    return fake_quantize(weight.detach().float(), scales(weight, grid), None, grid.args)


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, grid: Grid) -> Tensor:
        return rounded(weight, grid).to(weight.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def through(weight: Tensor, grid: Grid) -> Tensor:
    """`rounded` in `weight`'s type, with the gradient of the identity (the straight-through estimator of Bengio et
    al., 2013)."""
    return _Through.apply(weight, grid)


def compressed(weight: Tensor, grid: Grid) -> dict[str, Tensor]:
    """The layer's tensors by their names below it: `weight_packed` [out, words], `weight_scale` [out, groups] and
    `weight_shape` [2], or `weight` (int8) and `weight_scale`."""
    state = {"weight": rounded(weight, grid), "weight_scale": scales(weight, grid)}
    packed = _compressor(grid).compress(state, grid.scheme)
    return {**packed, "weight_scale": packed["weight_scale"].to(grid.scale_type)}


def decompressed(state: dict[str, Tensor], grid: Grid) -> Tensor:
    """The layer's weight [out, in] (float32) from its stored tensors."""
    state = {**state, "weight_scale": state["weight_scale"].float()}
    return _compressor(grid).decompress(state, grid.scheme)["weight"]


def _compressor(grid: Grid) -> Any:
    from compressed_tensors.compressors import BaseCompressor

    return BaseCompressor.get_value_from_registry(grid.format)
