"""Hand-written bodies that are out to do harm, each with the statuses that it may get."""

import json

from tests.integration.fuzz_bodies import BASES, CHAT, COMPLETIONS, DETOKENIZE, RESPONSES, TOKENIZE

BAD = (400, 422)
ANY = (200, 400, 422)  # whether it is a mistake is vLLM's to say

RAW = [  # bodies that are no request at all
    (b"", 400),
    (b"null", 400),
    (b"[]", 400),
    (b'"text"', 400),
    (b"{", 400),
    (b"{'model': 'policy'}", 400),
    (b'{"model": "policy", "messages": [', 400),
    (b"[" * 100_000, 400),
    (b'{"a":' * 200 + b"1" + b"}" * 200, 400),
    (b"\xff\xfe{\x00}\x00", 400),
    (b'{"model": "\xc3"}', 400),
    (b'{"model": "\\ud800"}', 400),
    (b'{"model": "policy", "model": "policy"}', 400),
    (b'{"temperature": NaN}', 400),
    (b'{"temperature": Infinity}', 400),
    (b'{"temperature": 1e999}', 400),
    (b'{"seed": 1' + b"0" * 5000 + b"}", 400),
    (b'{"prompt": "' + b"x" * (2 << 20) + b'"}', 413),
]


def _json_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


def _format(schema):
    return {"response_format": _json_schema(schema), "thinking_token_budget": 0}


DEAD_ENDS = [  # after which no token of the vocabulary may follow
    _format({"type": "string"}),  # it has no quotation mark
    _format({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    _format({"type": "string", "pattern": "(?=x)y"}),
    {"structured_outputs": {"regex": "\\p{L}+"}, "thinking_token_budget": 0},
]
FIELDS = {
    CHAT: [
        *[({"messages": value}, BAD) for value in (None, "x", 5, {}, [], [5], [[]], [{}], [{"role": 5}])],
        *[({"messages": [{"role": "user", "content": value}]}, ANY) for value in (None, "", [], 5, {}, [5], [{}])],
        ({"messages": [{"role": "alien", "content": "x"}]}, ANY),
        ({"messages": [{"role": "user", "content": "x " * 100_000}]}, BAD),
        ({"messages": [{"role": "user", "content": "x"}] * 10_000}, BAD),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]}, BAD),
        ({"model": "other"}, (404,)),
        *[({"model": value}, (*ANY, 404)) for value in (None, "", 5, [], "../policy", "policy\x00")],
        ({"max_tokens": None}, (200,)),
        *[({"max_tokens": value}, BAD) for value in (0, -1, 2**62, "many", [])],
        *[({"n": value}, BAD) for value in (0, -1, 129, 2**62, "two", [])],
        *[({"temperature": value}, BAD) for value in (-1, "hot", [])],
        *[({"temperature": value}, ANY) for value in (0, 1e308, 1e-308, None)],
        *[({"top_p": value}, BAD) for value in (-1, 1.1, "x")],
        *[({"top_k": value}, ANY) for value in (-2, -1, 0, 2**31, 2**62)],
        *[({"min_p": value}, BAD) for value in (-1, 2)],
        *[({"repetition_penalty": value}, ANY) for value in (0, -1, 1e-300, 1e300)],
        *[({"logit_bias": value}, ANY) for value in ({"0": 1e308}, {"0": -1e308}, {"0": None}, {"0": "a"}, [])],
        *[({"logit_bias": {key: 1}}, BAD) for key in ("999999", "-1", "x", "", "1.5", str(2**64))],
        *[({"stop": value}, ANY) for value in ([""], "", 5, [5], [" "] * 1000, ["x" * 1000] * 50)],
        *[({"seed": value}, ANY) for value in (2**63 - 1, -(2**63), "x", -1)],
        *[({"logprobs": True, "top_logprobs": value}, ANY) for value in (-2, -1, 21, 2**31)],
        *[({"prompt_logprobs": value}, ANY) for value in (-2, -1, 2**31)],
        ({"top_logprobs": 2}, ANY),
        ({"stream_options": {"include_usage": True}}, ANY),
        *[({"stream": value}, ANY) for value in ("yes", 2, None, [])],
        *[({"min_tokens": value}, ANY) for value in (5, -1, 2**62)],
        *[({"thinking_token_budget": value}, ANY) for value in (-1, 2**62, "x", [], 0)],
        *[({"allowed_token_ids": value}, ANY) for value in ([], [2**40], [-1], [0])],
        *[({"bad_words": value}, ANY) for value in ([""], ["x" * 1000], [5], ["a"] * 1000)],
        *[({"truncate_prompt_tokens": value}, ANY) for value in (-2, -1, 0, 2**62)],
        *[({"tools": value}, ANY) for value in ([], [5], [{}], [{"type": "function"}], "x")],
        ({"tool_choice": "required"}, ANY),
        ({"tool_choice": {"type": "function", "function": {"name": "missing"}}}, ANY),
        *[({"response_format": value}, ANY) for value in ({}, {"type": "json_schema"}, {"type": "x"}, "x", [])],
        *[(_format(schema), ANY) for schema in ({"type": "nope"}, {"enum": []}, {"not": {}}, {"type": []}, {})],
        (_format({"allOf": [{"type": "integer"}, {"type": "string"}]}), ANY),
        (_format({"type": "integer", "minimum": 5, "maximum": 4}), ANY),
        (_format({"$ref": "http://127.0.0.1:1/schema"}), ANY),
        (_format({"type": "string", "pattern": "("}), ANY),
        (_format({"type": "array", "minItems": 2**31, "maxItems": 1}), ANY),
        *[({"structured_outputs": {"choice": value}}, ANY) for value in ([], [""], [5], ["x" * 5000])],
        *[({"structured_outputs": {"regex": value}}, ANY) for value in ("(", "", "(a*)*", "a{1000000}")],
        ({"structured_outputs": {"json": "no json"}}, ANY),
        ({"structured_outputs": {"choice": ["7"], "regex": "7"}}, ANY),
        ({"structured_outputs": {"grammar": "root ::= root"}}, BAD),
        ({"chat_template_kwargs": {"messages": 5, "self": 1}}, ANY),
        ({"add_generation_prompt": True, "continue_final_message": True}, ANY),
        ({"priority": 2**62}, ANY),
        ({"cache_salt": ""}, ANY),
        ({"unknown_field": 1}, ANY),
    ],
    COMPLETIONS: [
        *[({"prompt": value}, ANY) for value in (None, "", [], [[]], [""], {}, 5, [1.5], ["a", 1], [[1], "a"], [None])],
        *[({"prompt": value}, BAD) for value in ([-1], [2**40], [[2**62]], "x " * 100_000, ["a"] * 129, [[1]] * 500)],
        *[({"max_tokens": value}, ANY) for value in (None, 0, -1, 2**62)],
        *[({"logprobs": value}, ANY) for value in (-1, 0, 21, 2**31)],
        *[({"echo": True, "max_tokens": 0}, ANY), ({"echo": True, "logprobs": 1, "stream": True}, ANY)],
        *[({"suffix": value}, ANY) for value in ("x", 5)],
        ({"best_of": 10**6}, ANY),
        ({"use_beam_search": True}, BAD),
        ({"prompt_embeds": "AAAA"}, BAD),
    ],
    RESPONSES: [
        *[({"input": value}, ANY) for value in (None, "", [], 5, {}, [5], [{}], [{"type": "message"}])],
        *[({"max_output_tokens": value}, ANY) for value in (None, 0, -1, 2**62)],
        ({"previous_response_id": "resp_missing"}, (*ANY, 404)),
        ({"background": True}, ANY),
        ({"background": True, "stream": True}, ANY),
        ({"store": True}, ANY),
        *[({"text": {"format": value}}, ANY) for value in ({}, {"type": "json_schema"}, {"type": "x"}, 5)],
        ({"tools": [{"type": "mcp", "server_url": "http://127.0.0.1:1"}]}, BAD),
        ({"reasoning": {"effort": "endless"}}, ANY),
        ({"include": ["everything"]}, ANY),
        ({"truncation": "auto", "input": "x " * 100_000}, ANY),
    ],
    TOKENIZE: [
        *[({"prompt": value}, ANY) for value in (None, "", 5, [], {}, "\x00", "x" * 500_000)],
        ({"prompt": None, "messages": [{}]}, ANY),
        ({"model": "other"}, (404,)),
    ],
    DETOKENIZE: [
        *[({"tokens": value}, ANY) for value in (None, "", 5, [], ["a"], [1.5], [1] * 300_000)],
        *[({"tokens": value}, ANY) for value in ([-1], [2**31], [2**62])],
        ({"model": "other"}, (404,)),
    ],
}


def hostile():
    """(path, headers, body as sent, allowed statuses)"""
    plain = {"content-type": "application/json"}
    for path in BASES:
        for raw, status in RAW:
            yield path, plain, raw, (status,)
        for changes, statuses in FIELDS[path]:
            yield path, plain, json.dumps(BASES[path] | changes).encode(), statuses
    good = json.dumps(BASES[CHAT]).encode()
    yield CHAT, {"content-type": "text/plain"}, good, (415,)
    yield CHAT, {}, good, (415,)
    yield CHAT, plain | {"content-encoding": "gzip"}, good, (415,)
