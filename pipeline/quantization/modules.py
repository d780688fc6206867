"""Models that compute with rounded weights: for training them, and for telling what rounding does to the answers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.quantization.folder import layers_of
from pipeline.quantization.grid import W8A8_BITS, Grid, through

INT8_MOST = 127


class RoundedLinear(nn.Linear):
    """A linear layer that keeps its weight whole and computes with it rounded to `grid`."""

    grid: Grid

    def forward(self, inputs: Tensor) -> Tensor:
        if self.grid.bits == W8A8_BITS:
            inputs = rounded_inputs(inputs)
        return functional.linear(inputs, through(self.weight, self.grid), self.bias)


def rounded_inputs(inputs: Tensor) -> Tensor:
    """`inputs` [..., in] on the 8-bit levels of each token's own scale, as vLLM's W8A8 layers round them. Gradients
    pass unchanged."""
    scale = inputs.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / INT8_MOST
    return inputs + ((inputs / scale).round() * scale - inputs).detach()


def put_on_grid(model: nn.Module, grid: Grid) -> list[str]:
    """Turns the model's linear layers but for its output head into `RoundedLinear`, in place: names, weights and
    optimisers stay as they are. Returns their names."""
    names = []
    for name, layer in layers_of(model):
        layer.__class__, layer.grid = RoundedLinear, grid
        names.append(name)
    return names


@contextmanager
def on_grid(model: nn.Module, grid: Grid) -> Iterator[None]:
    """`put_on_grid` for as long as the block runs."""
    put_on_grid(model, grid)
    try:
        yield
    finally:
        for _, layer in layers_of(model):
            layer.__class__ = nn.Linear


@dataclass(frozen=True)
class Difference:
    """What rounding changes, over `tokens` predictions: mean KL divergence (nats, whole model to rounded), the largest
    difference of logits, and the share of predictions whose likeliest token stays."""

    tokens: int
    kl: float
    logit_max: float
    same_top: float


def difference(model: nn.Module, grid: Grid, sequences: Sequence[Sequence[int]]) -> Difference:
    """Of the model's predictions after each token of each sequence (token ids)."""
    tokens, kl, most, same = 0, 0.0, 0.0, 0
    for ids in sequences:
        whole = _logits(model, ids)
        with on_grid(model, grid):
            there = _logits(model, ids)
        tokens += len(ids)
        kl += float(divergence(whole, there).sum())
        most = max(most, float((whole - there).abs().max()))
        same += int((whole.argmax(-1) == there.argmax(-1)).sum())
    return Difference(tokens, kl / tokens, most, same / tokens)


def divergence(wanted: Tensor, found: Tensor) -> Tensor:
    """KL divergence [N] (nats) of softmax(`found`) from softmax(`wanted`), both logits [N, V]."""
    logs, others = wanted.float().log_softmax(-1), found.float().log_softmax(-1)
    return (logs.exp() * (logs - others)).sum(-1)


def _logits(model: nn.Module, ids: Sequence[int]) -> Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(ids)])).logits[0].float()


def own_sequences(model: Any, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
    """Each prompt (token ids) with the model's own greedy continuation of up to `new_tokens` tokens."""
    generate: Callable[..., Tensor] = model.generate
    found = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            whole = generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False)
        found.append(whole[0].tolist())
    return found
