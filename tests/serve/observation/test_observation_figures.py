"""From pages of Prometheus figures to a profile's figures, by hand."""

import pytest

from serve.advice_profile import check_profile
from serve.observation.figures import LEAST_SPAN_S, finished, of_engine, of_traffic, peak_to_mean
from serve.observation.samples import Sample, increase, new_observations, read_sample

PAGE = """\
# TYPE process_start_time_seconds gauge
process_start_time_seconds {process}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0"}} {kv}
# TYPE vllm:request_success counter
vllm:request_success_total{{finished_reason="stop"}} {stop}
vllm:request_success_total{{finished_reason="length"}} {length}
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total {preempted}
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total {queries}
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total {hits}
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total {accepted}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{le="0.1"}} {quick}
vllm:time_to_first_token_seconds_bucket{{le="1.0"}} {stop}
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {stop}
vllm:time_to_first_token_seconds_count {stop}
vllm:time_to_first_token_seconds_sum 0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{{le="0.01"}} {quick}
vllm:inter_token_latency_seconds_bucket{{le="0.03"}} {stop}
vllm:inter_token_latency_seconds_bucket{{le="+Inf"}} {stop}
vllm:inter_token_latency_seconds_count {stop}
vllm:inter_token_latency_seconds_sum 0
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{{le="100.0"}} {quick}
vllm:request_prompt_tokens_bucket{{le="200.0"}} {stop}
vllm:request_prompt_tokens_bucket{{le="+Inf"}} {stop}
vllm:request_prompt_tokens_count {stop}
vllm:request_prompt_tokens_sum 0
"""
NOTHING = dict.fromkeys(
    ("running", "waiting", "kv", "stop", "length", "preempted", "queries", "hits", "drafted", "accepted", "quick"), 0
)


def page(at, process="1.0", **figures):
    return read_sample(PAGE.format(process=process, **NOTHING | figures), at)


BEFORE = {"stop": 100, "quick": 100, "queries": 1000, "hits": 900, "drafted": 50, "accepted": 40}
AFTER = {"stop": 120, "quick": 110, "queries": 3000, "hits": 1400, "drafted": 90, "accepted": 60, "preempted": 3}


def test_figures_of_one_replica():
    samples = [page(0, **BEFORE), page(1, running=2, kv=0.5, **BEFORE), page(2, running=6, kv=1.0, **AFTER)]
    found = of_traffic(samples, max_num_seqs=8, ttft_target_ms=550)
    assert found == {
        "prompt_tokens_p50": 100, "prompt_tokens_p95": 190, "shared_prefix_share": 0.25, "kv_usage": 0.975,
        "preemptions": 3, "batch_occupancy": 0.5, "acceptance": 0.5, "itl_p95_ms": 28.0, "late_share": 0.25,
    }  # fmt: skip
    assert check_profile({"device": "cpu"} | found, "x").acceptance == 0.5
    assert finished(samples) == 20


def test_what_nobody_did_is_not_measured():
    samples = [page(0), page(1)]
    assert of_traffic(samples, 8, 100) == {"preemptions": 0}
    assert of_traffic(samples[:1], 8, 100) == {} == of_traffic([], 8)
    assert "late_share" not in of_traffic([page(0, **BEFORE), page(1, **AFTER)], 8)
    quick = of_traffic([page(0), page(1, stop=20, quick=20)], 8)  # all tokens faster than the first bound
    assert "itl_p95_ms" not in quick and quick["prompt_tokens_p95"] == 95


def test_replicas_behind_one_address_are_told_apart():
    samples = [page(0, "1.0", stop=5), page(1, "2.0", stop=70), page(2, "1.0", stop=8), page(3, "2.0", stop=71)]
    samples.append(page(4, "3.0", stop=900))  # read once: nobody knows what it did meanwhile
    assert increase(samples, "vllm:request_success_total") == 4
    assert new_observations(samples, "vllm:inter_token_latency_seconds")[0.03] == 4
    assert increase(samples, "no_such_total") is None and new_observations(samples, "none") == {}


def arrivals(*counts, process="1.0", every=1.0):
    return [Sample(i * every, process, {"vllm:request_success_total": count}) for i, count in enumerate(counts)]


def test_bursts():
    even = arrivals(*range(0, 62, 2))  # two a second for 30 s
    assert peak_to_mean(even) == pytest.approx(1)
    burst = arrivals(*[0] * 10, *[30] * 31)  # 30 at once in 40 s
    assert peak_to_mean(burst) == pytest.approx((30 / 10) / (30 / 40))
    assert peak_to_mean(arrivals(*range(0, 42, 2))) == pytest.approx(1)  # just long enough
    assert peak_to_mean(arrivals(*range(0, 38, 2))) is None and LEAST_SPAN_S == 20
    assert peak_to_mean(arrivals(*[0] * 30, 9)) is None and peak_to_mean([]) is None
    other = arrivals(*range(0, 62, 2), process="2.0")
    assert peak_to_mean([*even, *other]) == pytest.approx(1)


def test_a_request_that_waits_or_runs_has_arrived():
    at_once = Sample(1, "1.0", {"vllm:num_requests_running": 4, "vllm:num_requests_waiting": 16})
    samples = [Sample(0, "1.0"), at_once, Sample(30, "1.0", {"vllm:request_success_total": 20})]
    assert peak_to_mean(samples) == pytest.approx(3)


def test_the_engine():
    told = {"device": "cpu", "max_model_len": 512, "kv_cache_blocks": 16, "block_size": 32, "tensor_parallel_size": 1}
    assert of_engine(told, 2) == {"device": "cpu", "gpus": 0, "context_tokens": 512, "kv_capacity_tokens": 512}
    assert of_engine({"device": "cuda", "tensor_parallel_size": 2}, 3) == {"device": "cuda", "gpus": 6}
