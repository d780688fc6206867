"""Random requests against the layer: an OpenAI-shaped answer each time, no 500, no leak, no lost place."""

import asyncio
import json
import string

from hypothesis import given
from hypothesis import strategies as st

from serve.access.body import CHECKS, REFUSED
from serve.access.routes import find_route
from tests.serve.access.fake_app import ADMIN, INFER, KEYS, OLD, ask_raw, layered

FIELDS = sorted({*CHECKS, *REFUSED, "n", "prompt", "priority", "cache_salt", "max_tokens", "logit_bias", "model"})
PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/tokenize",
    "/detokenize",
    "/v1/models",
    "/metrics",
]
NESTED = ["type", "content", "role", "function", "name", "parameters", "url", "image_url", "pattern", "json", "regex"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["function", "a{99}"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NESTED) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), values, max_size=6)
raw_bodies = st.binary(max_size=60) | bodies.map(lambda body: json.dumps(body).encode())
tokens = st.sampled_from(["", "sk-", INFER, ADMIN, OLD]) | st.text(string.printable, max_size=50)


def send(layer, method, path, token, body, cuts=(), kind=b"application/json"):
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parts = [body[low:high] for low, high in zip(edges, edges[1:], strict=False)]
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False
    headers = [(b"content-type", kind)]
    if token is not None:
        headers.append((b"authorization", b"Bearer " + token.encode("utf-8", "replace")))
    return asyncio.run(ask_raw(layer, method, path, headers=headers, messages=messages))


@given(st.sampled_from(PATHS), raw_bodies, st.lists(st.integers(0, 60), max_size=3))
def test_any_body_is_answered_and_what_passes_is_an_object(path, body, cuts):
    layer, seen = layered(keys=KEYS)
    status, reply = send(layer, "POST", path, INFER, body, cuts)
    assert status in (200, 400, 404) and layer.inside == 0
    if status == 200:
        passed = json.loads(seen.bodies[0])
        assert isinstance(passed, dict) and not [name for name in REFUSED if passed.get(name) is not None]
        if path.startswith("/v1/"):
            assert len(passed.pop("cache_salt")) == 64
            sent = {name: value for name, value in json.loads(body).items() if name not in ("cache_salt", "priority")}
            assert {name: value for name, value in passed.items() if name != "priority"} == sent
    else:
        assert json.loads(reply)["error"]["code"] == status and seen.bodies == []


@given(
    st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS"]), st.sampled_from(PATHS) | st.text(max_size=30), tokens
)
def test_only_a_key_with_the_scope_gets_through(method, path, token):
    layer, seen = layered(keys=KEYS)
    status, _ = send(layer, method, path, token, b'{"prompt":"a"}')
    route = find_route(method, path)
    allowed = {"open": True, "infer": token.strip() in (INFER, ADMIN), "admin": token.strip() == ADMIN}
    assert (status == 200) == bool(route and allowed[route.scope]) == bool(seen.scopes)
    assert status in (200, 401, 403, 404)


@given(st.lists(st.tuples(st.sampled_from(PATHS), tokens, raw_bodies), max_size=12))
def test_no_sequence_of_requests_loses_a_place_or_passes_the_rate(requests):
    layer, seen = layered(keys=KEYS, requests_per_minute=3, max_waiting=1)
    for path, token, body in requests:
        status, _ = send(layer, "POST", path, token, body)
        assert status in (200, 400, 401, 404, 429) and layer.inside == 0
    assert len(seen.bodies) <= 2 * 3
