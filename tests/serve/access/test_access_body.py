"""Bodies: size, JSON, and the fields that must not reach the engine."""

import asyncio
import json

import pytest

from serve.access.body import MAX_SEQUENCES, check_body
from serve.access.errors import Refusal
from serve.access.reading import MAX_DEPTH, parse_object, read_body
from serve.access.regexes import ENDLESS, nested_repeats
from serve.access.specs import MAX_NESTED, MAX_SPEC_BYTES
from tests.serve.access.fake_app import CHAT, INFER, KEYS, ask, ask_raw, error_of, layered

PATH = "/v1/chat/completions"
JSON = (b"content-type", b"application/json")


def post(layer, **more):
    return asyncio.run(ask(layer, "POST", PATH, **more))


def chunks(*parts):
    last = len(parts) - 1
    return [{"type": "http.request", "body": part, "more_body": i < last} for i, part in enumerate(parts)]


def test_a_good_body_goes_on_as_it_came():
    layer, seen = layered()
    sent = b' {"prompt" : "\xc3\xa9", "n": 2, "temperature": 1e-3}\n'
    reply = post(layer, content=sent, headers={"content-type": "application/json; charset=utf-8"})
    assert reply.status_code == 200 and seen.bodies == [sent]
    assert dict(seen.scopes[0]["headers"])[b"content-length"] == str(len(sent)).encode()


def test_too_large_by_its_header_is_not_read():
    layer, seen = layered(max_body_bytes=10)
    status, body = asyncio.run(ask_raw(layer, "POST", PATH, headers=[JSON, (b"content-length", b"11")]))
    assert status == 413 and "10 bytes" in error_of(body)["message"] and seen.scopes == [] and layer.inside == 0


def test_too_large_in_chunks_is_not_read_to_its_end():
    taken = []

    async def receive():
        taken.append(1)
        return {"type": "http.request", "body": b"x" * 40, "more_body": True}

    with pytest.raises(Refusal) as caught:
        asyncio.run(read_body(receive, 100))
    assert caught.value.status == 413 and len(taken) == 3


def test_exactly_the_limit_is_taken_in_any_chunks():
    layer, seen = layered(max_body_bytes=14)
    whole = b'{"prompt":"a"}'
    for parts in ([whole], [whole[:3], b"", whole[3:]]):
        headers = [JSON, (b"transfer-encoding", b"chunked")]
        assert asyncio.run(ask_raw(layer, "POST", PATH, headers=headers, messages=chunks(*parts)))[0] == 200
    assert seen.bodies == [whole, whole]
    assert b"transfer-encoding" not in dict(seen.scopes[0]["headers"])


def test_a_slow_body_has_a_deadline():
    async def never():
        await asyncio.sleep(60)

    with pytest.raises(Refusal) as caught:
        asyncio.run(read_body(never, 100, deadline_s=0.01))
    assert caught.value.status == 408


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "multipart/form-data"}, 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 415),
        ({"content-type": "APPLICATION/JSON"}, 200),
    ],
)
def test_only_plain_json(headers, status):
    layer, _ = layered()
    assert post(layer, content=b"{}", headers=headers).status_code == status


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"nul", b"[]", b'"text"', b"5", b"null", b"\xff\xfe{\x00}\x00", b'{"a": "\xff"}', b"{}{}"),
        *(
            b'{"a": NaN}',
            b'{"a": Infinity}',
            b'{"a": -Infinity}',
            b'{"a": 1e999}',
            b'{"a": [-1e999]}',
            b"\xef\xbb\xbf{}",
        ),
        *(
            b'{"a": 1, "a": 2}',
            b'{"a": {"b": 1, "b": 1}}',
            b'{"a": "\\ud800"}',
            b'{"a": ["\\uDFFF"]}',
            b'{"\\ud800": 1}',
        ),
        *(b'{"a": 9223372036854775808}', b'{"a": [-9223372036854775809]}', b'{"a": ' + b"9" * 5000 + b"}"),
        *(b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", b'{"a":' * 100_000, b"[" * 100_000),
    ],
)
def test_strict_json(body):
    layer, seen = layered()
    reply = post(layer, content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400 and error_of(reply)["type"] == "invalid_request_error" and seen.bodies == []


def test_what_strict_json_still_takes():
    deep = b'{"a": ' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    for body in (b"{}", deep, b'{"a": 9223372036854775807, "b": -9223372036854775808}', b'{"a": "\\ud83d\\ude00"}'):
        assert parse_object(body) == json.loads(body)


def part(**fields):
    return {"messages": [{"role": "user", "content": [fields]}]}


def tool(**function):
    return {"tools": [{"type": "function", "function": function}]}


REFUSED = [
    ({"chat_template": "{{ 1 }}"}, "chat_template"),
    ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"return_tensors": "pt"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"tokenizer": 1}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"model_config": 1}}, "chat_template_kwargs"),
    *(({"stream": value}, "stream") for value in ("true", 1, 0, [])),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options"),
    ({"stream": True, "stream_options": {"continuous_usage_stats": "yes"}}, "stream_options"),
    ({"prompt_embeds": "abc"}, "prompt_embeds"),
    ({"kv_transfer_params": {"remote_host": "10.0.0.1"}}, "kv_transfer_params"),
    ({"ec_transfer_params": {}}, "ec_transfer_params"),
    ({"vllm_xargs": {"path": "/etc"}}, "vllm_xargs"),
    ({"vllm_xargs": {"max_draft_tokens": 1, "path": "/etc"}}, "vllm_xargs"),
    ({"vllm_xargs": {"max_draft_tokens": -1}}, "vllm_xargs"),
    ({"vllm_xargs": {"max_draft_tokens": True}}, "vllm_xargs"),
    ({"vllm_xargs": "max_draft_tokens"}, "vllm_xargs"),
    ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
    ({"media_io_kwargs": {"image": {}}}, "media_io_kwargs"),
    ({"request_id": "v9-00000000"}, "request_id"),
    ({"guided_json": {}}, "guided_json"),
    ({"use_speculative": True}, "use_speculative"),
    ({"num_speculative_tokens": 5}, "num_speculative_tokens"),
    ({"decs_enabled": False}, "decs_enabled"),
    ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"use_beam_search": "true"}, "use_beam_search"),
    ({"n": MAX_SEQUENCES + 1}, "n"),
    ({"n": "500.0"}, "n"),
    ({"n": 500.0}, "n"),
    ({"n": True}, "n"),
    ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
    ({"prompt": [[1]] * (MAX_SEQUENCES + 1)}, "prompt"),
    ({"messages": []}, "messages"),
    (part(type="image_url", image_url={"url": "file:///etc/passwd"}), "messages"),
    (part(type="image_url", image_url={"url": "http://169.254.169.254/"}), "messages"),
    (part(image_url="file:///etc/passwd"), "messages"),
    (part(type="text", text="a", image_url="file:///etc/passwd"), "messages"),
    (part(type="text", text="a", uuid="1"), "messages"),
    (part(type="image_embeds", image_embeds="abc"), "messages"),
    (part(type="input_audio", input_audio={"data": "x"}), "messages"),
    (part(type="file", file={"file_id": "x"}), "messages"),
    (part(type=["text"]), "messages"),
    ({"messages": [{"role": "system", "content": [5]}]}, "messages"),
    ({"messages": [{"role": "user", "content": {"type": "video_url"}}]}, "messages"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
    ({"input": [{"type": "computer_call_output", "output": {"image_url": "x"}}]}, "input"),
    ({"input": [{"type": "function_call_output", "output": [{"type": "input_file", "file_url": "x"}]}]}, "input"),
    ({"previous_input_messages": [{}]}, "previous_input_messages"),
    ({"tools": [{"type": "mcp", "server_url": "http://x"}]}, "tools"),
    ({"tools": [{"type": "function"}], "tool_choice": {"function": {"name": "f"}}}, "tools"),
    *(
        ({"tools": [one], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tools")
        for one in ({"name": "f"}, {"type": "custom", "name": "x"}, {"type": "namespace", "name": "x", "tools": []})
    ),
    (tool(parameters={}), "tools"),
    ({"tools": [5]}, "tools"),
    ({"tools": [{"function": None}]}, "tools"),
    (tool(name="f", parameters={"enum": ["x" * MAX_SPEC_BYTES]}), "tools"),
    *(({"structured_outputs": value}, "structured_outputs") for value in (0, "x", [], [1], True)),
    ({"structured_outputs": {"choice": ["abc"] * 5000}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "((a{1,100}){1,100}){1,100}"}}, "structured_outputs"),
    ({"structured_outputs": {"grammar": "root ::= root root | [a-z]"}}, "structured_outputs"),
    ({"structured_outputs": {"json": '{"pattern": "(a*)**"}'}}, "structured_outputs"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": "(a?){9999}"}}}},
        "response_format",
    ),
    ({"text": {"format": {"schema": {"enum": ["x" * MAX_SPEC_BYTES]}}}}, "text"),
    ({"structured_outputs": {"json": {"patternProperties": {"(a*)*": {}}}}}, "structured_outputs"),
    ({"stop": "x" * 2000}, "stop"),
    ({"stop": ["a", "x" * 2000]}, "stop"),
    ({"repetition_detection": {"max_pattern_size": 10**9, "min_count": 2}}, "repetition_detection"),
    ({"repetition_detection": {"max_pattern_size": "1000000.0", "min_count": 2}}, "repetition_detection"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_fields(body, param):
    layer, seen = layered()
    reply = post(layer, json=CHAT | body if "messages" not in body else body)
    assert reply.status_code == 400 and error_of(reply)["param"] == param and seen.bodies == []


TAKEN = [
    {"thinking_token_budget": 5, "a_field_of_the_clients_own": 1},
    {"max_tokens": None, "n": None, "stop": None, "chat_template": None, "tools": None},
    {"n": MAX_SEQUENCES, "logit_bias": {"5": 100}, "top_logprobs": 5, "logprobs": True, "seed": -1},
    {"prompt": list(range(1000))},
    {"stream": None, "stream_options": {"include_usage": None, "include_obfuscation": 1}},
    {"tools": [{"type": "custom", "name": "x"}], "tool_choice": {"type": "function", "name": "f"}},
    {"prompt": ["a"] * MAX_SEQUENCES},
    {
        "stop": ["a", "b"],
        "chat_template_kwargs": {"enable_thinking": False},
        "documents": [{"title": "a", "text": "b"}],
    },
    part(type="text", text="file:///etc/passwd"),
    {"messages": [{"role": "user", "content": ["plain", {"type": "text", "text": "x"}]}, {"role": "assistant"}]},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "{}"}}]}]},
    {"input": "text", "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}},
    {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "summary": []},
        ]
    },
    tool(name="f", parameters={"properties": {"image_url": {"type": "string", "maxLength": 100_000}}}),
    {"tools": [{"type": "function", "name": "f", "parameters": {}}]},
    {"structured_outputs": {"regex": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"}},
    {"structured_outputs": {"choice": ["yes", "no"]}},
    {"structured_outputs": {"regex": "a{1,100000}"}},
    {"structured_outputs": {"json": {"properties": {"grammar": {"type": "string"}, "pattern": {"type": "string"}}}}},
    {"response_format": {"type": "json_object"}},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"description": "((a*)*)*", "pattern": "a{1,9999}"}},
        }
    },
    {"tokens": [1, 2, 3]},
    # Left to vLLM, which says itself what is wrong.
    {"messages": 5, "tools": {}, "structured_outputs": {"json": "{"}, "response_format": 5, "stop": 5, "input": 5},
]


@pytest.mark.parametrize("body", TAKEN, ids=lambda value: str(value)[:40])
def test_taken_fields(body):
    check_body(body)


@pytest.mark.parametrize(
    ("regex", "copies"),
    [
        ("", 0),
        ("a{1,100000}b*c+", 0),
        ("(ab){3}", 0),
        ("(a{4}b){3}", 12),
        ("(a{2,5}){3}", 15),
        ("((a{10}){10}){10}", 1000),
        ("(a*)*", ENDLESS),
        ("(a|)+", ENDLESS),
        ("(?:a*)*", ENDLESS),
        (r"(?P<x>^a*\b$)*", ENDLESS),
        ("(?=a{3}){9}", 27),
        ("(a|b?)*", ENDLESS),
        ("(a*b?){2,}", ENDLESS),
        ("(a?){1,25}", 25),
        ("(a+)+", 256),
        ("(a*b)*", 256),
        ("([a-z]+ ?)+", 256),
        ("((a*)*)*b", ENDLESS),
        ("(a?){1,1000}b", 1000),
        ("(a+){1,1000}", 16000),
        ("(a|b{2}){3,}", 32),
        ("(ab{2}c){1,3}(d{9})", 6),
        ("a**", ENDLESS),
        ("a+?", 16),
        (r"(\*a){50}", 0),
        (r"([a*+(]){50}", 0),
        (r"(\d{1,3}\.){3}\d{1,3}", 9),
        ("(a{3}", 0),
        (")a{3}", 0),
        ("{3}", 0),
        ("|{3}", 0),
        ("(*a)", 0),
        ("(x{name}){9}", 0),
    ],
)
def test_nested_repeats(regex, copies):
    assert nested_repeats(regex) == copies


def test_nested_repeats_is_quick_and_never_fails():
    assert nested_repeats("(" * 5_000 + "a" + "){9}" * 5_000) > MAX_NESTED
    assert nested_repeats("[" * 10_000) == nested_repeats("\\") == 0


def test_tenants_have_caches_of_their_own():
    layer, seen = layered(keys=KEYS)
    for body in ({"prompt": "é"}, {"prompt": "é", "cache_salt": "another's"}, {"prompt": "é", "cache_salt": None}):
        asyncio.run(ask(layer, "POST", "/v1/completions", token=INFER, json=body))
    salts = {json.loads(body)["cache_salt"] for body in seen.bodies}
    assert len(salts) == 1 and len(salts.pop()) == 64
    for scope, body in zip(seen.scopes, seen.bodies, strict=True):
        assert dict(scope["headers"])[b"content-length"] == str(len(body)).encode()
        assert json.loads(body)["prompt"] == "é"
    asyncio.run(ask(layer, "POST", "/tokenize", token=INFER, json={"prompt": "a"}))
    assert json.loads(seen.bodies[-1]) == {"prompt": "a"}


def test_each_key_another_salt_and_none_where_switched_off():
    from serve.access.callers import salt_of

    assert len({salt_of(key) for key in KEYS}) == 3 and not any(key.digest in salt_of(key) for key in KEYS)
    layer, seen = layered(keys=KEYS, tenant_salts=False)
    asyncio.run(ask(layer, "POST", PATH, token=INFER, json=CHAT | {"cache_salt": "mine"}))
    assert json.loads(seen.bodies[0])["cache_salt"] == "mine"


@pytest.mark.parametrize(
    ("floor", "own", "result"),
    [(None, None, None), (None, 5, 5), (None, -5, 0), (3, None, 3), (3, 5, 5), (3, 1, 3), (-2, None, -2), (-2, -9, -2)],
)
def test_priority_has_a_floor(floor, own, result):
    from dataclasses import replace

    layer, seen = layered(keys=(replace(KEYS[0], priority=floor),), tenant_salts=False)
    body = CHAT if own is None else CHAT | {"priority": own}
    headers = {"x-vllm-priority": "-99", "X-Data-Parallel-Rank": "1"}
    asyncio.run(ask(layer, "POST", PATH, token=INFER, json=body, headers=headers))
    assert json.loads(seen.bodies[0]).get("priority") == result
    passed = {name.lower() for name, _ in seen.scopes[0]["headers"]}
    assert not passed & {b"x-vllm-priority", b"x-data-parallel-rank", b"authorization"}


@pytest.mark.parametrize("priority", ["-5", -5.0, True, [1]])
def test_priority_is_a_whole_number(priority):
    layer, seen = layered(keys=KEYS)
    reply = post(layer, token=INFER, json=CHAT | {"priority": priority})
    assert reply.status_code == 400 and error_of(reply)["param"] == "priority" and seen.bodies == []
