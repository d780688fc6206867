"""Whether weights on a part of the traffic may go on: what their replicas answered against what the others did. Pure.

Figures are of the replies since a first look. A limit is crossed where

    refusals        a replica refused the weights
    silence         a canary replica has not answered for gate.max_silence_s
    error rate      more replies failed than the others' share of failures plus gate.max_error_rate allows, of
                    gate.min_canary_requests at least (so that failures count before that many have come)
    latency         from gate.min_canary_requests replies on each side: the lower bound of the ratio of medians, or of
                    99th percentiles, is above gate.max_latency_ratio
    tokens          from as many: the lower bound of the ratio of output tokens an answered reply is above
                    gate.max_tokens_ratio
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from pipeline.config.schema import Gate
from pipeline.evaluation.estimators import interval
from serve.promotion.check import Check, Interval

ROUNDS = 1000
QUANTILES = {"p50": 0.5, "p99": 0.99}
States = Mapping[str, Mapping[str, Any]]  # replica id -> what it says of itself


@dataclass(frozen=True)
class Traffic:
    """Replies of one mark. `left`: the client went away first. `seconds` are the latest latencies of those that were
    neither, `output_tokens` and `squared_tokens` the sums of theirs and of the squares of theirs."""

    requests: int = 0
    failed: int = 0
    left: int = 0
    output_tokens: int = 0
    seconds: tuple[float, ...] = ()
    squared_tokens: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.requests + other.requests,
            self.failed + other.failed,
            self.left + other.left,
            self.output_tokens + other.output_tokens,
            self.seconds + other.seconds,
            self.squared_tokens + other.squared_tokens,
        )

    @property
    def answered(self) -> int:
        return self.requests - self.failed - self.left

    @property
    def tokens_a_reply(self) -> float:
        return self.output_tokens / self.answered

    @property
    def relative_error(self) -> float:
        """Standard error of `tokens_a_reply` over itself, from two answered replies."""
        mean = self.tokens_a_reply
        variance = max(self.squared_tokens / self.answered - mean**2, 0.0)
        return math.sqrt(variance / (self.answered - 1)) / mean


def traffic_since(before: States, now: States, mark: str) -> Traffic:
    """What all replicas answered with the weights of `mark` since `before`. A replica that was not there then, or has
    started anew, counts whole."""
    total = Traffic()
    for replica, state in now.items():
        total += _since(_served(before.get(replica), mark), _served(state, mark))
    return total


def _served(state: Mapping[str, Any] | None, mark: str) -> Traffic:
    entry = ((state or {}).get("served") or {}).get(mark)
    if entry is None:
        return Traffic()
    counts = entry["requests"], entry["failed"], entry.get("left", 0), entry["output_tokens"]
    return Traffic(*counts, tuple(entry["seconds"]), entry.get("squared_tokens", 0))


def _since(before: Traffic, now: Traffic) -> Traffic:
    if now.requests < before.requests:  # it started anew
        return now
    new, failed, left = now.requests - before.requests, now.failed - before.failed, now.left - before.left
    timed = min(max(new - failed - left, 0), len(now.seconds))
    recent = now.seconds[len(now.seconds) - timed :]
    tokens, squared = now.output_tokens - before.output_tokens, now.squared_tokens - before.squared_tokens
    return Traffic(new, failed, left, tokens, recent, squared)


def refusals_since(before: States, now: States, digest: str) -> int:
    """How often replicas refused the weights of `digest` since `before`."""
    count = 0
    for replica, state in now.items():
        last = state.get("last_refusal")
        earlier = before.get(replica, {}).get("refusals", 0)
        if last and last["digest"] == digest:
            count += max(state["refusals"] - earlier, 0)
    return count


def watch(canary: Traffic, others: Traffic, limits: Gate, *, refusals: int = 0, silent_s: float = 0) -> list[Check]:
    """All checks so far. `silent_s`: how long a canary replica has been without an answer."""
    least = limits.min_canary_requests
    enough = min(canary.requests, others.requests) >= max(least, 1)
    return [
        Check("refusals of the snapshot", refusals, None, 0, refusals > 0),
        Check("seconds of silence", silent_s, None, limits.max_silence_s, silent_s > limits.max_silence_s),
        _errors(canary, others, limits),
        *(_latency(name, canary, others, limits, enough) for name in QUANTILES),
        _tokens(canary, others, limits),
    ]


def _errors(canary: Traffic, others: Traffic, limits: Gate) -> Check:
    usual = others.failed / others.requests if others.requests else 0.0
    allowed = usual + limits.max_error_rate
    rate = canary.failed / canary.requests if canary.requests else None
    counted = canary.failed / max(canary.requests, limits.min_canary_requests, 1)
    return Check("error rate", rate, None, allowed, counted > allowed)


def _latency(name: str, canary: Traffic, others: Traffic, limits: Gate, enough: bool) -> Check:
    share = QUANTILES[name]
    title = f"latency ratio {name}"
    if not (enough and canary.seconds and others.seconds):
        return Check(title, None, None, limits.max_latency_ratio)
    value = float(np.quantile(canary.seconds, share) / max(float(np.quantile(others.seconds, share)), 1e-9))
    found = _ratio_interval(canary.seconds, others.seconds, share, limits.confidence)
    return Check(title, value, found, limits.max_latency_ratio, found[0] > limits.max_latency_ratio)


def _ratio_interval(ours: tuple[float, ...], theirs: tuple[float, ...], share: float, confidence: float) -> Interval:
    """Percentile bootstrap of the ratio of quantiles; the two sides are drawn apart."""
    rng = np.random.default_rng(0)

    def drawn(values: tuple[float, ...]) -> np.ndarray:
        return np.quantile(rng.choice(values, (ROUNDS, len(values))), share, axis=1)

    top, bottom = drawn(ours), drawn(theirs)
    return interval(top / np.maximum(bottom, 1e-9), confidence)


def _tokens(canary: Traffic, others: Traffic, limits: Gate) -> Check:
    title = "output tokens ratio"
    enough = min(canary.answered, others.answered) >= max(limits.min_canary_requests, 2)
    if not (enough and canary.output_tokens and others.output_tokens):
        return Check(title, None, None, limits.max_tokens_ratio)
    ratio = canary.tokens_a_reply / others.tokens_a_reply
    found = _log_normal(ratio, math.hypot(canary.relative_error, others.relative_error), limits.confidence)
    return Check(title, ratio, found, limits.max_tokens_ratio, found[0] > limits.max_tokens_ratio)


def _log_normal(ratio: float, relative_error: float, confidence: float) -> Interval:
    """Of a ratio of means, whose logarithm is about normal."""
    factor = math.exp(NormalDist().inv_cdf(0.5 + confidence / 2) * relative_error)
    return ratio / factor, ratio * factor
