"""Bodies for the fuzzing of an endpoint: those its schema leads to, and valid ones with odd fields."""

import json
import logging

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from serve.access.routes import find_route

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
QUESTION = [{"role": "user", "content": "3 + 4 = ?"}]
BASES = {
    CHAT: {"model": "policy", "messages": QUESTION, "max_tokens": 4},
    COMPLETIONS: {"model": "policy", "prompt": "3 + 4 =", "max_tokens": 4},
    RESPONSES: {"model": "policy", "input": "3 + 4 = ?", "max_output_tokens": 4},
    TOKENIZE: {"model": "policy", "prompt": "3 + 4 ="},
    DETOKENIZE: {"model": "policy", "tokens": [5, 6, 7]},
}
LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens")
ODD = [
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 2**70, 0.5, -0.0, 1e308, 5e-324),
    *("", "x", "0", "\x00", "🙂" * 50, "\ud800", [], [[]], [None], [""], [-1], [2**40], {}, {"": None}, {"0": 1e9}),
]


def served_schema():
    """vLLM's OpenAPI document, cut down to the routes that the access layer lets through."""
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    level = logging.root.level
    document = build_app(args, supported_tasks=("generate",)).openapi()
    logging.root.setLevel(level)  # the app sets it to ERROR, for every test that follows
    kept = {}
    for path, methods in document["paths"].items():
        served = {method: operation for method, operation in methods.items() if find_route(method.upper(), path)}
        kept |= {path: served} if served else {}
    return document | {"paths": kept}


def schema_cases(document, count, seed):
    """About `count` cases (method, path, headers, body as sent) that schemathesis makes of the document, both such as
    the document allows and such as it does not."""
    import schemathesis
    from schemathesis.generation import GenerationMode

    operations = [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]
    posts = [operation for operation in operations if operation.method == "post"]
    made = []

    for operation in posts:
        for mode in GenerationMode:
            quiet = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

            @hypothesis.seed(seed)
            @settings(max_examples=max(count // (2 * len(posts)), 1), phases=[Phase.generate], **quiet)
            @given(operation.as_strategy(generation_mode=mode))
            def collect(case):
                made.append(_as_sent(case))

            collect()
    return made


def _as_sent(case):
    request = case.as_transport_kwargs(base_url="http://endpoint")
    body = json.dumps(request["json"]).encode() if request.get("json") is not None else request.get("data", b"")
    body = body.encode() if isinstance(body, str) else body
    names = ("content-type", "accept")
    headers = {name: value for name, value in request["headers"].items() if name.lower() in names}
    return request["method"], case.path, headers, body


class Splicer:
    """Valid bodies in which some fields have values from elsewhere: from the schema's cases, or odd ones. Unlike those
    cases they get past the first check, to where a single field does its harm."""

    def __init__(self, cases, rng):
        self._rng = rng
        self._values = {path: {} for path in BASES}
        for _, path, _, body in cases:
            for name, value in _fields(body).items():
                if path in BASES and len(json.dumps(value)) < 10_000:
                    self._values[path].setdefault(name, []).append(value)

    def body(self):
        """(path, body) with one to three fields replaced or added."""
        rng = self._rng
        path = rng.choices(list(BASES), (8, 5, 4, 1, 1))[0]
        known = sorted(self._values[path]) or sorted(BASES[path])
        body = dict(BASES[path])
        for name in rng.sample(known, min(rng.randint(1, 3), len(known))):
            own = self._values[path].get(name, ODD)
            body[name] = rng.choice(own if rng.random() < 0.7 else ODD)
        if "n" in body:  # many long replies would only take long
            body |= {name: 4 for name in LENGTHS if name in body}
        return path, body


def _fields(body):
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return {name: value for name, value in found.items() if name} if isinstance(found, dict) else {}
