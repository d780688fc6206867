"""From the raw results of vLLM's load generator to the figures of a row. Pure.

One repeat is one raw result, or one a group where groups were sent one after the other. Times in seconds in, ms out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs._bench_stats import paired, percentile
from pipeline.evaluation.estimators import interval

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ROUNDS = 500  # of a bootstrap
COUNTS = ("num_drafts", "draft_tokens", "accepted_tokens")
Latency = dict[str, Any]


class Faulty(ValueError):
    """A raw result that is not the measurement that was asked for; the text says in what."""


@dataclass(frozen=True)
class Slo:
    """What a good reply keeps to, in ms: its first token within `ttft`, and at most `tpot` a token after it."""

    ttft: float
    tpot: float

    def to_dict(self) -> dict[str, float]:
        return {"ttft_ms": self.ttft, "tpot_ms": self.tpot}


@dataclass(frozen=True)
class Repeat:
    """One measurement. By request, in the order sent: tokens, time to the first chunk, gaps between chunks, and to the
    last one. `drafts`: how often was drafted, tokens drafted, tokens accepted; None without speculation."""

    seconds: float
    tokens: list[int]
    first: list[float]
    gaps: list[list[float]]
    whole: list[float]
    drafts: tuple[int, ...] | None

    @property
    def tokens_per_s(self) -> float:
        return sum(self.tokens) / self.seconds

    def between(self) -> list[float]:
        """Mean time between tokens of each reply of more than one."""
        triples = zip(self.first, self.whole, self.tokens, strict=True)
        return [(whole - first) / (count - 1) if count > 1 else 0.0 for first, whole, count in triples]

    def good(self, slo: Slo) -> int:
        """Replies that kept to it."""
        pairs = zip(self.first, self.between(), strict=True)
        return sum(1000 * first <= slo.ttft and 1000 * each <= slo.tpot for first, each in pairs)


def read(parts: Sequence[Mapping[str, Any]], asked: Sequence[int]) -> Repeat:
    """The repeat that `parts` make; `asked` has the tokens each reply was to have.

    The generator ends with success whatever came back, so its counts are checked here: Faulty where a request failed,
    is missing, or has another length than asked for.
    """
    errors = [error for part in parts for error in part["errors"] if error]
    done, failed = (sum(part[name] for part in parts) for name in ("completed", "failed"))
    if failed or done != len(asked):
        why = f": {errors[0].strip().splitlines()[-1][:200]}" if errors else ""
        raise Faulty(f"{failed} of {len(asked)} requests failed, {done} came back{why}")
    tokens = [count for part in parts for count in part["output_lens"]]
    if wrong := [(have, want) for have, want in zip(tokens, asked, strict=True) if have != want]:
        raise Faulty(f"{len(wrong)} of {len(asked)} replies have another length than asked for, the first {wrong[0]}")
    told = [part for part in parts if "spec_decode_num_drafts" in part]
    return Repeat(
        seconds=sum(part["duration"] for part in parts),
        tokens=tokens,
        first=[value for part in parts for value in part["ttfts"]],
        gaps=[values for part in parts for values in part["itls"]],
        whole=[value for part in parts for value in part["latencies"]],
        drafts=tuple(sum(part[f"spec_decode_{name}"] for part in told) for name in COUNTS) if told else None,
    )


def row_figures(repeats: Sequence[Repeat], slo: Slo) -> dict[str, Any]:
    """Of a row: the throughput is the median over the repeats, latencies are those of all replies together."""
    rates = [repeat.tokens_per_s for repeat in repeats]
    seconds = sum(repeat.seconds for repeat in repeats)
    good, sent = sum(r.good(slo) for r in repeats), sum(len(r.tokens) for r in repeats)
    return {
        "requests_ok": sent,
        "requests_per_s": sent / seconds,
        "output_tokens_per_s": percentile(rates, 0.5),
        "output_tokens_per_s_interval": median_interval(rates),
        "output_tokens_per_s_repeats": rates,
        "ttft_ms": latency([[value] for repeat in repeats for value in repeat.first]),
        "itl_ms": latency([values for repeat in repeats for values in repeat.gaps]),
        "tpot_ms": latency([[value] for repeat in repeats for value in repeat.between()]),
        "e2e_ms": latency([[value] for repeat in repeats for value in repeat.whole]),
        "goodput": {"slo": slo.to_dict(), "share": good / sent, "requests_per_s": good / seconds},
        "acceptance": acceptance([repeat.drafts for repeat in repeats]),
    }


def median_interval(values: Sequence[float]) -> list[float] | None:
    """95 % percentile bootstrap of the median over repeats; None for fewer than three, whose spread is unknown."""
    if len(values) < 3:
        return None
    rng = np.random.default_rng(0)
    draws = np.median(rng.choice(np.asarray(values), size=(ROUNDS, len(values))), axis=1)
    return list(interval(draws))


def latency(by_request: Sequence[Sequence[float]]) -> Latency:
    """p50, p95 and p99 in ms over all values, and the 95 % bootstrap interval of each; requests are drawn again, since
    the values of one do not vary independently. Nones without values."""
    arrays = [1000 * np.asarray(values) for values in by_request if len(values)]
    if not arrays:
        return {**dict.fromkeys(SHARES), "intervals": dict.fromkeys(SHARES)}
    shares = list(SHARES.values())
    rng = np.random.default_rng(0)
    picks = rng.integers(len(arrays), size=(ROUNDS, len(arrays)))
    draws = np.array([np.quantile(np.concatenate([arrays[i] for i in pick]), shares) for pick in picks])
    found = np.quantile(np.concatenate(arrays), shares)
    spans = {name: list(interval(draws[:, column])) for column, name in enumerate(SHARES)}
    return {**dict(zip(SHARES, map(float, found), strict=True)), "intervals": spans}


def acceptance(drafts: Sequence[tuple[int, ...] | None]) -> dict[str, float | int] | None:
    """Of all drafted tokens the share accepted, and the tokens a verified step gave (its own one included); None where
    nothing was drafted."""
    known = [counts for counts in drafts if counts]
    steps, drafted, accepted = (sum(column) for column in zip(*known, strict=True)) if known else (0, 0, 0)
    if not drafted:
        return None
    return {
        "rate": accepted / drafted,
        "tokens_per_step": 1 + accepted / steps,
        "drafts": steps,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
    }


def gain(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | int | None]:
    """Tokens a second over those of another row, repeat by repeat (both got the same requests)."""
    both = min(len(ours), len(theirs))
    return paired(ours[:both], theirs[:both])
