"""Between requests and vLLM's sampling parameters, and between its outputs and traces."""

import math
from collections.abc import Sequence
from typing import Any

from pipeline.engine.requests import EngineError, GenerateRequest
from pipeline.traces import Stop, Trace, VersionSpan

STOPS = {"stop": Stop.EOS, "length": Stop.LENGTH, "abort": Stop.ABORT}


def sampling_params(request: GenerateRequest, stop_ids: Sequence[int]) -> Any:
    """vLLM `SamplingParams`: all samples in one final output, each with the log-prob of the token it drew."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        n=request.n,
        seed=request.seed,
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_new_tokens,
        stop_token_ids=list(stop_ids),
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scoring_params() -> Any:
    """vLLM `SamplingParams` that ask for the log-probs of the prompt's own tokens (raw: temperature 1)."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def choosing_params(choices: Sequence[int]) -> Any:
    """vLLM `SamplingParams` for one token out of `choices`, with the log-probs of all of them among themselves."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        allowed_token_ids=list(choices),
        logprobs=len(choices),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def choice_probabilities(output: Any, choices: Sequence[int]) -> list[float]:
    """Probabilities [C] of `choices`, summing to 1, from the answer to `choosing_params`. EngineError if not so."""
    (found,) = output.outputs[0].logprobs or (None,)
    shares = [math.exp(found[choice].logprob) if found and choice in found else math.nan for choice in choices]
    if not math.isclose(sum(shares), 1, abs_tol=1e-3):
        raise EngineError(f"probabilities {shares} of the tokens {list(choices)} do not add up to 1")
    return shares


def to_trace(request: GenerateRequest, sample: Any, version: int, text: str) -> Trace:
    """One vLLM `CompletionOutput` as a trace; `version` serves where vLLM reports none (no token was made).

    EngineError where log-probs or version spans do not fit the tokens.
    """
    token_ids = tuple(sample.token_ids)
    logprobs = tuple(sample.logprobs.logprobs) if sample.logprobs is not None else ()
    if len(logprobs) != len(token_ids) or not all(map(math.isfinite, logprobs)):
        raise EngineError(
            f"issue '{request.issue_id}' sample {sample.index}: {len(logprobs)} log-probs for {len(token_ids)} tokens, "
            f"{sum(not math.isfinite(value) for value in logprobs)} not finite"
        )
    if sample.finish_reason not in STOPS:
        raise EngineError(f"issue '{request.issue_id}' sample {sample.index} ended with '{sample.finish_reason}'")
    return Trace(
        problem_id=request.problem_id,
        sample=sample.index,
        prompt_ids=tuple(request.prompt_ids),
        token_ids=token_ids,
        logprobs=logprobs,
        versions=version_spans(sample.weight_versions, len(token_ids), version),
        stop=STOPS[sample.finish_reason],
        text=text,
    )


def version_spans(spans: Sequence[Any] | None, length: int, version: int) -> tuple[VersionSpan, ...]:
    """Spans that cover [0, length) without gap, from vLLM's `weight_versions` (labels are version numbers)."""
    if not spans:
        return (VersionSpan(version, 0, length),) if length else ()
    found = tuple(VersionSpan(int(span.version), span.start, span.end) for span in spans if span.start != span.end)
    edges = [0, *(span.end for span in found)]
    if edges[-1] != length or any(span.start != edge for span, edge in zip(found, edges, strict=False)):
        raise EngineError(f"version spans {[(s.start, s.end) for s in found]} do not cover {length} tokens")
    return found


def prompt_logprobs(output: Any, token_ids: Sequence[int], start: int) -> list[float]:
    """Log-probs [T - start] of `token_ids[start:]` from a scoring request over all of `token_ids`."""
    found = output.prompt_logprobs
    if found is None or len(found) != len(token_ids):
        raise EngineError(f"{len(found or ())} prompt log-probs came back for {len(token_ids)} tokens")
    return [float(found[i][token_ids[i]].logprob) for i in range(start, len(token_ids))]
