"""Tokens of finished requests by what they were for, among the figures that a replica tells Prometheus."""

from prometheus_client import Counter

PHASES = ("prompt", "reasoning", "answer")
_TOKENS = Counter("decs_tokens", "Tokens of requests that this replica answered, by phase", ["phase"])
_BY_PHASE = [_TOKENS.labels(phase) for phase in PHASES]


def count_tokens(prompt: int, reasoning: int, output: int) -> None:
    """Adds one reply of `output` tokens, `reasoning` of them before the end of its thinking."""
    for counter, tokens in zip(_BY_PHASE, (prompt, reasoning, max(output - reasoning, 0)), strict=True):
        counter.inc(tokens)
