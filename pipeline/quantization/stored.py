"""What a checkpoint's config.json says of weights that are rounded already. Pure: neither torch nor vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Number = Literal["int", "float", "unknown"]


@dataclass(frozen=True)
class Stored:
    """`method` is the config's own name of the format; `bits` of a weight, None where it is not told; `group` weights
    that share a scale, None for a whole row or tensor; `activation_bits` 16 where activations are not rounded."""

    method: str
    number: Number = "unknown"
    bits: int | None = None
    group: int | None = None
    activation_bits: int = 16
    blocks: bool = False  # a scale for each rectangle of weights

    @property
    def name(self) -> str:
        """As in "INT4 (W4A16, groups of 32, compressed-tensors)"."""
        if self.bits is None:
            return self.method
        kind = {"int": "INT", "float": "FP", "unknown": ""}[self.number]
        grouped = ", blocks" if self.blocks else f", groups of {self.group}" if self.group else ""
        return f"{kind}{self.bits} (W{self.bits}A{self.activation_bits}{grouped}, {self.method})"


def stored_quantisation(model: Mapping[str, Any]) -> Stored | None:
    """Of a model's config.json; None for one whose weights are not rounded. A config of several kinds is named by its
    first. Formats whose fields are not known here come with their name alone."""
    config = model.get("quantization_config") or _mapping(model.get("text_config")).get("quantization_config")
    if not isinstance(config, Mapping) or not config:
        return None
    method = str(config.get("quant_method") or "unknown")
    if method == "compressed-tensors":
        return _compressed(config)
    if method == "fp8":
        return Stored(method, "float", 8, None, 8, blocks=bool(config.get("weight_block_size")))
    if method in ("gptq", "awq"):
        group = config.get("group_size") or config.get("q_group_size")
        return Stored(method, "int", config.get("bits") or config.get("w_bit"), group if (group or 0) > 0 else None)
    return Stored(method)


def _compressed(config: Mapping[str, Any]) -> Stored:
    groups = [group for group in _mapping(config.get("config_groups")).values() if _mapping(group).get("weights")]
    if not groups:
        return Stored("compressed-tensors")
    weights, activations = groups[0]["weights"], _mapping(groups[0].get("input_activations"))
    kind = weights.get("type") if weights.get("type") in ("int", "float") else "unknown"
    return Stored(
        "compressed-tensors",
        kind,
        weights.get("num_bits"),
        weights.get("group_size") if weights.get("strategy") == "group" else None,
        activations.get("num_bits") or 16,
        blocks=weights.get("strategy") == "block",
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
