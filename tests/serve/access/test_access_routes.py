"""Which paths exist; every other spelling does not, with or without a key."""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serve.access.routes import find_route
from tests.serve.access.fake_app import ADMIN, CHAT, INFER, KEYS, OLD, ask, ask_raw, error_of, layered

OPEN = ["/livez", "/readyz", "/health", "/ui", "/ui/", "/ui/app.js", "/ui/style.css"]
READ = ["/v1/models", "/v1/models/policy", "/v1/models/org/name-1.5"]
WORK = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"]
ADMINS = ["/metrics", "/admin/version", "/admin/effective-config"]
OTHER = [
    *("/", "//v1/models", "/V1/models", "/v1/models/", "/v1/../v1/models", "/v1/models/..", "/v1/models/../x", "/v1"),
    *("/v1/models/a/b/c", "/ui/../metrics", "/ui/a/b", "/ui//app.js", "/ui/.", "/metrics/", "/admin", "/admin/"),
    *("/admin/versions", "/admin/version/x", "/admin/swap", "/admin/..", "/admin/version/"),
    *("/admin/../metrics", "/docs", "/openapi.json", "/v1/load_lora_adapter", "/pause", "/v1/embeddings", "/version"),
    *("/v1/chat/completions/", "/v1/chat/completions/batch", "/v1/responses/resp_1", "/tokenizer_info", "/health/"),
    *("/v1/models\n", "/v1/models\x00", "/v1/models;x", "/ui\\app.js", "/livez ", "/reset_prefix_cache"),
    *("/v1/chat/completions/render", "/inference/v1/generate", "/server_info", "/collective_rpc", "/sleep", "/ping"),
]
ENCODED = [
    "/v1%2Fmodels",
    "/%761/models",
    "/v1/models/%2e%2e",
    "/ui/%2e%2e/metrics",
    "/v1/chat%2fcompletions",
    "/livez%00",
]


def run(layer, method, path, **more):
    if method == "POST":
        more.setdefault("json", CHAT)
    return asyncio.run(ask(layer, method, path, **more))


@pytest.mark.parametrize("path", OPEN)
def test_open_routes_need_no_key(path):
    layer, seen = layered(keys=KEYS)
    assert run(layer, "GET", path).status_code == run(layer, "HEAD", path, token="wrong").status_code == 200
    assert len(seen.scopes) == 2


@pytest.mark.parametrize("path", OPEN + READ + WORK + ADMINS + OTHER)
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "get", "WEIRD"]
)
def test_without_a_key_nothing_else_opens(path, method):
    if path in OPEN and method in ("GET", "HEAD"):
        return
    layer, seen = layered(keys=KEYS)
    refusals = []
    for value in (
        b"",
        b"Bearer",
        b"Bearer ",
        b"bearer sk-wrong",
        b"Basic " + INFER.encode(),
        INFER.encode(),
        b"\xff\xfe",
    ):
        headers = [(b"authorization", value)] if value else []
        refusals.append(asyncio.run(ask_raw(layer, method, path, headers=headers)))
    refusals.append(asyncio.run(ask_raw(layer, method, path, headers=[(b"authorization", f"Bearer {OLD}".encode())])))
    refusals.append(asyncio.run(ask_raw(layer, method, path, headers=[(b"x-api-key", INFER.encode())])))
    assert len(set(refusals)) == 1 and refusals[0][0] == 401 and seen.scopes == []


@pytest.mark.parametrize("path", OTHER)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_other_paths_do_not_exist_even_with_the_admin_key(path, method):
    for keys in (KEYS, ()):
        layer, seen = layered(keys=keys)
        status, _ = asyncio.run(ask_raw(layer, method, path, headers=[(b"authorization", f"Bearer {ADMIN}".encode())]))
        assert status == 404 and seen.scopes == []


@pytest.mark.parametrize("path", ENCODED)
def test_encoded_spellings_do_not_exist(path):
    layer, seen = layered(keys=KEYS)
    for method in ("GET", "POST"):
        assert run(layer, method, path, token=ADMIN).status_code == 404
        assert run(layer, method, path).status_code == 401
    assert seen.scopes == []


@pytest.mark.parametrize("path", READ + WORK)
def test_infer_routes(path):
    method = "GET" if path in READ else "POST"
    layer, seen = layered(keys=KEYS)
    for token in (INFER, ADMIN):
        assert run(layer, method, path, token=token).status_code == 200
    assert run(layer, "DELETE", path, token=ADMIN).status_code == 404
    assert [scope["state"]["caller"].name for scope in seen.scopes] == ["ann", "root"]


@pytest.mark.parametrize("path", ADMINS)
def test_admin_routes(path):
    layer, seen = layered(keys=KEYS)
    reply = run(layer, "GET", path, token=INFER)
    assert reply.status_code == 403 and "admin" in error_of(reply)["message"]
    assert run(layer, "GET", path, token=ADMIN).status_code == 200 and len(seen.scopes) == 1
    assert run(layer, "POST", path, token=ADMIN).status_code == 404 and len(seen.scopes) == 1  # they only tell


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_scheme_in_any_case(scheme):
    layer, _ = layered(keys=KEYS)
    assert run(layer, "GET", "/v1/models", headers={"authorization": f"{scheme} {INFER}"}).status_code == 200


def test_without_keys_all_may_do_all():
    layer, seen = layered()
    for method, path in [
        ("GET", "/metrics"),
        ("GET", "/admin/version"),
        ("POST", "/v1/completions"),
        ("GET", "/livez"),
    ]:
        assert run(layer, method, path).status_code == 200
    caller = seen.scopes[0]["state"]["caller"]
    assert (caller.name, caller.scope, caller.priority) == ("anonymous", "admin", None)


TABLE = {(m, p) for p in OPEN + READ + ADMINS for m in ("GET", "HEAD")} | {("POST", p) for p in WORK}


@given(st.sampled_from(OPEN + READ + WORK + ADMINS), st.integers(0, 40), st.sampled_from("/.%\\;?#A \t\n\x00é"))
def test_one_sign_more_opens_nothing_else(path, where, sign):
    changed = path[:where] + sign + path[where:]
    for method in ("GET", "POST"):
        route = find_route(method, changed)
        if route is not None:  # another name of the same kind: a model, a file of the page
            assert sign in ".A/" and changed.startswith(("/ui/", "/v1/models/")) and "//" not in changed


@given(st.text(max_size=60), st.sampled_from(["GET", "POST", "HEAD", "OPTIONS"]))
@example("/v1/models/..", "GET")
@example("/admin/...", "GET")
def test_no_other_path_reaches_the_app(path, method):
    layer, seen = layered(keys=KEYS)
    messages = [{"type": "http.request", "body": b'{"prompt":"a"}', "more_body": False}]
    headers = [(b"authorization", f"Bearer {ADMIN}".encode()), (b"content-type", b"application/json")]
    status, _ = asyncio.run(ask_raw(layer, method, path, headers=headers, messages=messages))
    assert (find_route(method, path) is None) == (status == 404) == (not seen.scopes)


def test_websockets_are_closed():
    layer, seen = layered()
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(layer({"type": "websocket", "path": "/v1/realtime", "headers": []}, None, send))
    assert [message["type"] for message in sent] == ["websocket.close"] and seen.scopes == []
