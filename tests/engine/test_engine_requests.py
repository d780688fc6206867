"""Requests that would be clipped, clamped or misread are refused; outputs become traces or errors."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.engine import EngineError, GenerateRequest
from pipeline.engine.model_folder import ModelFolder
from pipeline.engine.translate import prompt_logprobs, to_trace, version_spans
from pipeline.traces import Stop, VersionSpan


def request(**keys):
    return GenerateRequest(**{"issue_id": "i", "problem_id": "p", "prompt_ids": (3, 4), "n": 2, "seed": 5, **keys})


def sample(**keys):
    flat = SimpleNamespace(logprobs=keys.pop("logprobs", [-1.0, -2.0]))
    base = {"index": 1, "token_ids": [7, 1], "logprobs": flat, "finish_reason": "stop", "weight_versions": None}
    return SimpleNamespace(**{**base, **keys})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"prompt_ids": ()}, "the prompt is empty"),
        ({"prompt_ids": (3, 96)}, "token ids run from 3 to 96; the model knows 0 to 95"),
        ({"prompt_ids": (-1,)}, "token ids run from -1"),
        ({"max_new_tokens": 31}, "exceed engine.max_model_len 32"),
        ({"n": 0}, "at least 1"),
        ({"seed": -1}, "seed -1 is out of range"),
        ({"seed": 2**63 - 1}, "out of range"),
        ({"top_p": 0.0}, "top_p"),
        ({"temperature": 0.001}, "must be 0 .greedy. or at least 0.01"),
        ({"temperature": 0.0}, "2 samples at temperature 0 would be identical"),
    ],
)
def test_requests_that_would_not_do_what_they_say(keys, text):
    with pytest.raises(UserError, match=f"issue 'i'.*{text}"):
        request(**{"max_new_tokens": 8, **keys}).check(max_model_len=32, vocab_size=96)


def test_a_request_that_just_fits():
    request(max_new_tokens=30).check(max_model_len=32, vocab_size=96)


def test_trace_carries_tokens_logprobs_and_stop():
    trace = to_trace(request(), sample(), 4, "text")
    assert (trace.problem_id, trace.sample, trace.token_ids, trace.logprobs) == ("p", 1, (7, 1), (-1.0, -2.0))
    assert (trace.stop, trace.versions, trace.text) == (Stop.EOS, (VersionSpan(4, 0, 2),), "text")
    assert to_trace(request(), sample(finish_reason="length"), 4, "").stop is Stop.LENGTH


@pytest.mark.parametrize(
    "keys",
    [
        {"logprobs": [-1.0]},
        {"logprobs": [-1.0, float("nan")]},
        {"logprobs": [-1.0, float("-inf")]},
        {"finish_reason": "repetition"},
        {"finish_reason": "error"},
    ],
)
def test_outputs_that_do_not_fit_are_errors(keys):
    with pytest.raises(EngineError, match="issue 'i' sample 1"):
        to_trace(request(), sample(**keys), 0, "")


def spans(*parts):
    return [SimpleNamespace(version=v, start=s, end=e) for v, s, e in parts]


def test_version_spans():
    assert version_spans(None, 0, 3) == ()
    assert version_spans(spans(("1", 0, 2), ("2", 2, 2), ("3", 2, 5)), 5, 9) == (
        VersionSpan(1, 0, 2),
        VersionSpan(3, 2, 5),
    )


@pytest.mark.parametrize(
    "parts", [[("1", 0, 4)], [("1", 1, 5)], [("1", 0, 2), ("2", 3, 5)], [("1", 0, 3), ("2", 2, 5)]]
)
def test_version_spans_with_gaps_or_overlaps_are_errors(parts):
    with pytest.raises(EngineError, match="do not cover 5 tokens"):
        version_spans(spans(*parts), 5, 0)


@given(st.lists(st.integers(0, 4), max_size=6))
def test_contiguous_spans_always_cover(lengths):
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    parts = [(str(i), edges[i], edges[i + 1]) for i in range(len(lengths))]
    got = version_spans(spans(*parts), edges[-1], 7)
    assert sum(span.end - span.start for span in got) == edges[-1]


def test_prompt_logprobs_pick_the_given_tokens():
    found = [None, {4: SimpleNamespace(logprob=-0.5)}, {5: SimpleNamespace(logprob=-0.25)}]
    assert prompt_logprobs(SimpleNamespace(prompt_logprobs=found), [3, 4, 5], 1) == [-0.5, -0.25]
    with pytest.raises(EngineError, match="0 prompt log-probs came back for 3 tokens"):
        prompt_logprobs(SimpleNamespace(prompt_logprobs=None), [3, 4, 5], 1)


def test_model_folder_reads_stop_ids_and_length(tmp_path):
    with pytest.raises(UserError, match="config.json is missing"):
        ModelFolder(tmp_path)
    (tmp_path / "config.json").write_text('{"vocab_size": 9, "eos_token_id": 1, "max_position_embeddings": 64}')
    folder = ModelFolder(tmp_path)
    assert (folder.vocab_size, folder.stop_ids, folder.texts([[1, 2]])) == (9, (1,), [""])
    with pytest.raises(UserError, match="max_model_len is 128 but the model in .* has 64 positions"):
        folder.check_length(128)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 5]}')
    assert ModelFolder(tmp_path).stop_ids == (1, 5)
    (tmp_path / "config.json").write_text('{"vocab_size": 9}')
    (tmp_path / "generation_config.json").write_text("{}")
    with pytest.raises(UserError, match="names no eos_token_id"):
        ModelFolder(tmp_path)
