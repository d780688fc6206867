"""The requests of a measurement: mixed lengths, planned from a seed, so that every phase sends the same. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LENGTHS = (8, 24, 64, 160)  # tokens of a reply


@dataclass(frozen=True)
class Shape:
    """One request: its number in the phase, what it asks and how long the reply is (every one is written to the end:
    `ignore_eos`, so a reply that is cut shows)."""

    number: int
    prompt: str
    max_tokens: int
    stream: bool
    seed: int


def plan(
    count: int, seed: int, prompts: Sequence[str], lengths: Sequence[int] = LENGTHS, stream_share: float = 0.5
) -> list[Shape]:
    """`count` requests. A plan is the beginning of any longer one with the same seed."""
    rng = random.Random(seed)
    shapes = []
    for number in range(count):
        prompt, length, drawn = rng.choice(prompts), rng.choice(lengths), rng.random()
        shapes.append(Shape(number, prompt, length, drawn < stream_share, rng.randrange(1 << 31)))
    return shapes


def body(shape: Shape, model: str, temperature: float = 1.0) -> dict[str, Any]:
    """The chat completion it is sent as. Token ids come back, so that tokens can be counted."""
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": shape.prompt}],
        "max_tokens": shape.max_tokens,
        "temperature": temperature,
        "seed": shape.seed,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    if shape.stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return asked


def split(total: int, parts: int) -> list[int]:
    """`total` in `parts` that differ by one at most, the larger first."""
    return [total // parts + (index < total % parts) for index in range(parts)]
