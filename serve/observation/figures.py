"""A profile's figures from readings of an endpoint. What was not measured is left out."""

from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles
from typing import Any

from serve.engine_config import kv_tokens
from serve.observation.histograms import quantile, share_above
from serve.observation.samples import Sample, by_process, increase, new_observations

BUSIEST_S = 10.0  # stretch whose rate is held against the mean
LEAST_SPAN_S, LEAST_ARRIVALS = 2 * BUSIEST_S, 10  # below these "bursts" means nothing
RUNNING, WAITING, DONE = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:request_success_total"
DRAFTED, ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"
HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"


def of_engine(effective: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    """What an engine's options say, by `serve.engine_config.effective_engine`; `replicas` are alike."""
    device = "cpu" if effective.get("device") == "cpu" else "cuda"
    found = {
        "device": device,
        "gpus": 0 if device == "cpu" else replicas * effective.get("tensor_parallel_size", 1),
        "context_tokens": effective.get("max_model_len"),
        "kv_capacity_tokens": kv_tokens(effective),
    }
    return {name: value for name, value in found.items() if value is not None}


def of_traffic(
    samples: Sequence[Sample], max_num_seqs: int | None, ttft_target_ms: float | None = None
) -> dict[str, Any]:
    """What the readings say. Each gauge counts as often as it was read, and only while requests ran."""
    drafted, queries = increase(samples, DRAFTED), increase(samples, QUERIES)
    prompts = new_observations(samples, "vllm:request_prompt_tokens")
    preempted = increase(samples, "vllm:num_preemptions_total")
    found = {
        "prompt_tokens_p50": _whole(quantile(prompts, 0.5)),
        "prompt_tokens_p95": _whole(quantile(prompts, 0.95)),
        "shared_prefix_share": (increase(samples, HITS) or 0.0) / queries if queries else None,
        "kv_usage": _percentile([s.values.get("vllm:kv_cache_usage_perc") for s in _busy(samples)], 95),
        "preemptions": None if preempted is None else int(preempted),
        "batch_occupancy": _occupancy(samples, max_num_seqs),
        "acceptance": (increase(samples, ACCEPTED) or 0.0) / drafted if drafted else None,
        "itl_p95_ms": _itl_p95(new_observations(samples, "vllm:inter_token_latency_seconds")),
        "peak_to_mean_rate": peak_to_mean(samples),
        "late_share": _late(samples, ttft_target_ms),
    }
    return {name: _rounded(value) for name, value in found.items() if value is not None}


def finished(samples: Sequence[Sample]) -> int:
    """Requests that ended between the readings."""
    return int(increase(samples, DONE) or 0)


def peak_to_mean(samples: Sequence[Sample]) -> float | None:
    """Arrivals a second in the busiest ten seconds over those of the whole stretch; None for a stretch too short."""
    arrived = [_arrivals(own) for own in by_process(samples) if len(own) > 1]
    if not arrived:
        return None
    start, end = max(line[0][0] for line in arrived), min(line[-1][0] for line in arrived)
    span, total = end - start, sum(_at(line, end) - _at(line, start) for line in arrived)
    if span < LEAST_SPAN_S or total < LEAST_ARRIVALS:
        return None
    begins = [at for line in arrived for at, _ in line if start <= at <= end - BUSIEST_S]
    peak = max((sum(_at(line, at + BUSIEST_S) - _at(line, at) for line in arrived) for at in begins), default=0.0)
    return (peak / BUSIEST_S) / (total / span)


def _arrivals(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """(time, requests that had come by then) of one process; a reading between two states may lag, time does not."""
    found, most = [], 0.0
    for sample in samples:
        most = max(most, sum(sample.values.get(name, 0.0) for name in (DONE, RUNNING, WAITING)))
        found.append((sample.at, most))
    return found


def _at(line: Sequence[tuple[float, float]], at: float) -> float:
    """Between two readings the count is taken to grow evenly."""
    for (before, low), (after, high) in zip(line, line[1:], strict=False):
        if at <= after:
            return low + (high - low) * max(0.0, at - before) / (after - before)
    return line[-1][1]


def _busy(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.values.get(RUNNING)]


def _occupancy(samples: Sequence[Sample], max_num_seqs: int | None) -> float | None:
    running = [sample.values[RUNNING] for sample in _busy(samples)]
    return min(1.0, fmean(running) / max_num_seqs) if running and max_num_seqs else None


def _percentile(values: Sequence[float | None], share: int) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return known[0] if known else None
    return quantiles(known, n=100, method="inclusive")[share - 1]


def _late(samples: Sequence[Sample], target_ms: float | None) -> float | None:
    waits = new_observations(samples, "vllm:time_to_first_token_seconds")
    return None if target_ms is None else share_above(waits, target_ms / 1000)


def _itl_p95(gaps: Mapping[float, float]) -> float | None:
    """None where it lies below the first bound: what is faster is not told apart."""
    found = quantile(gaps, 0.95)
    return None if found is None or found <= min(gaps) else found * 1000


def _whole(value: float | None) -> int | None:
    return None if value is None else max(1, round(value))


def _rounded(value: float | int) -> float | int:
    return round(value, 4) if isinstance(value, float) else value
