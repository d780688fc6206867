"""The layer as a whole: rotation, rates, places, CORS, and what the log says."""

import asyncio
import json
import logging

import pytest

from serve.access import AccessMiddleware, AccessSettings
from tests.serve.access.fake_app import (
    ADMIN,
    CHAT,
    INFER,
    KEYS,
    Clock,
    Seen,
    app_noting,
    ask,
    ask_raw,
    error_of,
    key,
    layered,
)

PATH = "/v1/chat/completions"
BODY = [{"type": "http.request", "body": b'{"prompt":"a"}', "more_body": False}]
HEAD = [(b"content-type", b"application/json")]


def post(layer, token=None, **more):
    return asyncio.run(ask(layer, "POST", PATH, token=token, **{"json": CHAT, **more}))


# --- keys ------------------------------------------------------------------------------------------------------------


def test_rotation_without_a_gap():
    new = "sk-" + "n" * 43
    layer, _ = layered(keys=KEYS)
    assert post(layer, INFER).status_code == 200 and post(layer, new).status_code == 401
    layer.update(AccessSettings(keys=(*KEYS, key(new, "ann-2"))))
    assert post(layer, INFER).status_code == post(layer, new).status_code == 200
    layer.update(AccessSettings(keys=(key(new, "ann-2"),)))
    assert post(layer, INFER).status_code == 401 and post(layer, new).status_code == 200


def test_missing_wrong_and_expired_look_the_same():
    layer, seen = layered(keys=KEYS)
    replies = [post(layer, token) for token in (None, "", "sk-wrong", "sk-" + "c" * 43)]
    assert {reply.content for reply in replies} == {replies[0].content} and seen.bodies == []
    assert error_of(replies[0])["code"] == 401 and replies[0].headers["www-authenticate"] == "Bearer"


# --- rates -----------------------------------------------------------------------------------------------------------


def test_requests_a_minute():
    clock = Clock(0.0)
    layer, seen = layered(clock=clock, keys=KEYS, requests_per_minute=2)
    assert [post(layer, INFER).status_code for _ in range(3)] == [200, 200, 429]
    reply = post(layer, INFER)
    assert reply.headers["retry-after"] == "30" and error_of(reply)["type"] == "rate_limit_error"
    assert post(layer, ADMIN).status_code == 200  # each key has its own
    assert asyncio.run(ask(layer, "GET", "/v1/models", token=INFER)).status_code == 200  # reading is no work
    clock.now = 30.0
    assert [post(layer, INFER).status_code for _ in range(2)] == [200, 429] and len(seen.bodies) == 5


def test_a_key_of_its_own_limits_shared_by_replicas():
    layer, _ = layered(keys=(key(INFER, "ann", requests_per_minute=6),), requests_per_minute=100, replicas=3)
    assert [post(layer, INFER).status_code for _ in range(3)] == [200, 200, 429]


def test_tokens_are_charged_afterwards_and_debt_refuses():
    clock = Clock(0.0)
    layer, seen = layered(clock=clock, keys=KEYS, tokens_per_minute=60)
    post(layer, INFER)
    seen.scopes[0]["state"]["caller"].charge(100)
    reply = post(layer, INFER)
    assert reply.status_code == 429 and reply.headers["retry-after"] == "41" and "tokens" in error_of(reply)["message"]
    clock.now = 41.0
    assert post(layer, INFER).status_code == 200


def test_an_update_gives_no_fresh_limit():
    layer, _ = layered(clock=Clock(0.0), keys=KEYS, requests_per_minute=1)
    assert post(layer, INFER).status_code == 200
    layer.update(AccessSettings(keys=KEYS, requests_per_minute=1, max_waiting=3))
    assert post(layer, INFER).status_code == 429


def test_limits_hold_without_keys_too():
    layer, _ = layered(requests_per_minute=1)
    assert [post(layer).status_code for _ in range(2)] == [200, 429]


STREAM = CHAT | {"stream": True}


@pytest.mark.parametrize(
    ("limits", "body", "options", "hides"),
    [
        ({"tokens_per_minute": 60}, STREAM, {"include_usage": True}, True),
        ({"tokens_per_minute": 60}, STREAM | {"stream_options": None}, {"include_usage": True}, True),
        (
            {"tokens_per_minute": 60},
            STREAM | {"stream_options": {"include_usage": False, "continuous_usage_stats": True}},
            {"include_usage": True},
            True,
        ),
        (
            {"tokens_per_minute": 60},
            STREAM | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            {"include_usage": True, "continuous_usage_stats": True},
            False,
        ),
        ({"tokens_per_minute": 60}, STREAM | {"stream_options": "x"}, "x", False),
        ({"tokens_per_minute": 60}, CHAT, None, False),
        ({}, STREAM, {"include_usage": True}, True),
    ],
)
def test_a_stream_tells_its_usage(limits, body, options, hides):
    layer, seen = layered(clock=Clock(0.0), keys=KEYS, **limits)
    assert post(layer, INFER, json=body).status_code == 200
    sent = json.loads(seen.bodies[0])
    assert sent.get("stream_options") == options and seen.scopes[0]["state"]["hide_usage"] is hides
    size = dict(seen.scopes[0]["headers"])[b"content-length"]
    assert int(size) == len(seen.bodies[0])


def test_responses_tell_their_usage_unasked():
    layer, seen = layered(clock=Clock(0.0), keys=KEYS, tokens_per_minute=60)
    body = {"input": "hi", "stream": True}
    assert asyncio.run(ask(layer, "POST", "/v1/responses", token=INFER, json=body)).status_code == 200
    assert "stream_options" not in json.loads(seen.bodies[0]) and seen.scopes[0]["state"]["hide_usage"] is False


# --- before the first settings ---------------------------------------------------------------------------------------


def test_without_settings_only_probes_are_answered():
    seen = Seen()
    layer = AccessMiddleware(app_noting(seen), None, clock=Clock(), now=Clock())
    for path in ("/livez", "/readyz"):
        assert asyncio.run(ask(layer, "GET", path)).status_code == 200
    for method, path in (
        ("POST", PATH), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/health"), ("GET", "/admin/version"),
        ("GET", "/ui"), ("GET", "/nowhere"), ("OPTIONS", PATH),
    ):  # fmt: skip
        more = {"json": CHAT} if method == "POST" else {}
        reply = asyncio.run(ask(layer, method, path, headers={"origin": ORIGIN}, **more))
        assert reply.status_code == 503 and error_of(reply)["code"] == 503 and reply.headers["retry-after"] == "1"
    assert len(seen.scopes) == 2
    layer.update(AccessSettings(keys=KEYS))
    assert post(layer).status_code == 401 and post(layer, INFER).status_code == 200


# --- caps on drafted tokens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_a_cap_that_nobody_would_keep_is_refused(kept):
    seen = Seen()
    layer = AccessMiddleware(app_noting(seen), AccessSettings(), keeps_caps=lambda: kept)
    reply = asyncio.run(ask(layer, "POST", PATH, json=CHAT | {"vllm_xargs": {"max_draft_tokens": 2}}))
    assert reply.status_code == (200 if kept else 400) and len(seen.scopes) == kept
    assert asyncio.run(ask(layer, "POST", PATH, json=CHAT)).status_code == 200


# --- places ----------------------------------------------------------------------------------------------------------


def test_full_replica_answers_at_once():
    async def scenario():
        release, started = asyncio.Event(), asyncio.Semaphore(0)

        async def slow(scope, receive, send):
            started.release()
            await release.wait()
            await app_noting(type("S", (), {"scopes": [], "bodies": []}))(scope, receive, send)

        layer, _ = layered(app=slow, max_waiting=2, requests_per_minute=3)
        running = [asyncio.create_task(ask(layer, "POST", PATH, json=CHAT)) for _ in range(2)]
        await started.acquire()
        await started.acquire()
        assert layer.inside == 2
        full = await ask(layer, "POST", PATH, json=CHAT)
        assert full.status_code == 503 and full.headers["retry-after"] == "1" and error_of(full)["code"] == 503
        release.set()
        assert [reply.status_code for reply in await asyncio.gather(*running)] == [200, 200]
        assert layer.inside == 0
        assert (await ask(layer, "POST", PATH, json=CHAT)).status_code == 200  # the refused one used no request
        assert (await ask(layer, "POST", PATH, json=CHAT)).status_code == 429

    asyncio.run(scenario())


def test_open_and_reading_routes_need_no_place():
    layer, _ = layered(max_waiting=1)
    layer._places.inside = 1
    for path in ("/livez", "/v1/models", "/admin/version"):
        assert asyncio.run(ask(layer, "GET", path)).status_code == 200
    assert post(layer).status_code == 503


def test_places_are_right_after_every_kind_of_end():
    async def fails(scope, receive, send):
        raise RuntimeError("the app broke")

    async def hangs(scope, receive, send):
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"  # the client's leaving reaches the app

    async def scenario():
        layer, _ = layered(app=fails)
        with pytest.raises(RuntimeError):
            await ask_raw(layer, "POST", PATH, headers=HEAD, messages=BODY)
        assert layer.inside == 0
        layer, _ = layered(app=hangs)
        assert await ask_raw(layer, "POST", PATH, headers=HEAD, messages=BODY) == (0, b"")
        assert layer.inside == 0
        cut = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
        assert await ask_raw(layer, "POST", PATH, headers=HEAD, messages=cut) == (0, b"")
        assert layer.inside == 0

        async def waits(scope, receive, send):
            await asyncio.sleep(60)

        layer, _ = layered(app=waits)
        task = asyncio.create_task(ask_raw(layer, "POST", PATH, headers=HEAD, messages=BODY))
        for _ in range(5):
            await asyncio.sleep(0)
        assert layer.inside == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert layer.inside == 0

    asyncio.run(scenario())


# --- browsers --------------------------------------------------------------------------------------------------------

ORIGIN = "https://app.example"


def preflight(layer, origin=ORIGIN, path=PATH):
    headers = {"origin": origin, "access-control-request-method": "POST"}
    return asyncio.run(ask(layer, "OPTIONS", path, headers=headers))


def test_cors_is_closed_by_default():
    layer, seen = layered(keys=KEYS)
    assert preflight(layer).status_code == 403
    reply = post(layer, INFER, headers={"origin": ORIGIN})
    assert reply.status_code == 200 and not [name for name in reply.headers if name.startswith("access-control")]
    assert len(seen.bodies) == 1


def test_cors_for_a_listed_origin():
    layer, seen = layered(keys=KEYS, cors_origins=(ORIGIN,))
    reply = preflight(layer)
    assert reply.status_code == 204 and seen.bodies == []
    assert reply.headers["access-control-allow-origin"] == ORIGIN and reply.headers["vary"] == "origin"
    assert "authorization" in reply.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in reply.headers
    for token, status in ((INFER, 200), (None, 401)):
        reply = post(layer, token, headers={"origin": ORIGIN})
        assert reply.status_code == status and reply.headers["access-control-allow-origin"] == ORIGIN
    for other in ("https://app.example.evil", "http://app.example", "null", "https://APP.example"):
        assert preflight(layer, other).status_code == 403
        assert "access-control-allow-origin" not in post(layer, INFER, headers={"origin": other}).headers
    assert preflight(layer, path="//v1/models").status_code == 403
    plain = asyncio.run(ask(layer, "OPTIONS", PATH, headers={"origin": ORIGIN}))
    assert plain.status_code == 401


def test_what_the_app_says_of_origins_does_not_count():
    async def loose(scope, receive, send):
        head = [(b"Access-Control-Allow-Origin", b"*")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b""})

    for origins in ((), (ORIGIN,)):
        layer, _ = layered(app=loose, cors_origins=origins)
        allowed = post(layer, headers={"origin": ORIGIN}).headers.get("access-control-allow-origin")
        assert allowed == (ORIGIN if origins else None)


# --- the log ---------------------------------------------------------------------------------------------------------


def test_one_line_a_request_and_never_a_key(caplog):
    caplog.set_level(logging.DEBUG)
    layer, _ = layered(keys=KEYS)
    post(layer, INFER)
    post(layer, "sk-wrong-wrong-wrong")
    asyncio.run(ask(layer, "GET", f"/v1/models/{INFER}", token=INFER))
    asyncio.run(ask(layer, "GET", f"/{INFER}?api_key={INFER}", headers={"x-api-key": INFER, "cookie": INFER}))
    asyncio.run(ask_raw(layer, "GET", "/a\nGET /forged 200"))
    lines = [record.getMessage() for record in caplog.records if record.name == "serve.access"]
    assert len(lines) == 5 and lines[0].startswith(f"POST {PATH} 200 ") and lines[0].endswith(" ms key=ann mark=v1-0")
    assert " 401 " in lines[1] and lines[1].endswith("key=- mark=-")
    assert not any("\n" in line for line in lines)
    for secret in (INFER, INFER[3:], "wrong-wrong", KEYS[0].digest):
        assert secret not in "".join(lines)
    assert "hi" not in lines[0]


def test_prompts_and_replies_only_when_asked(caplog):
    caplog.set_level(logging.INFO)
    layer, _ = layered(keys=KEYS, log_requests=True)
    post(layer, INFER)
    assert '\\"hi\\"' in caplog.text and '\\"ok\\"' in caplog.text and INFER not in caplog.text
    caplog.clear()
    layer.update(AccessSettings(keys=KEYS))
    post(layer, INFER)
    assert "hi" not in caplog.text


def test_an_app_that_fails_is_logged_with_status_500(caplog):
    async def fails(scope, receive, send):
        raise RuntimeError

    caplog.set_level(logging.INFO)
    layer, _ = layered(app=fails)
    with pytest.raises(RuntimeError):
        asyncio.run(ask_raw(layer, "GET", "/v1/models"))
    assert "GET /v1/models 500 " in caplog.text


def test_lifespan_passes():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    layer, _ = layered(app=app, keys=KEYS)
    asyncio.run(layer({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]


def test_the_app_gets_a_scope_of_its_own():
    layer, seen = layered(keys=KEYS)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/models",
        "headers": [(b"authorization", f"Bearer {INFER}".encode())],
        "state": {"shared": 1},
    }

    async def send(message):
        pass

    asyncio.run(layer(scope, None, send))
    assert scope["state"] == {"shared": 1} and seen.scopes[0]["state"]["shared"] == 1
    assert seen.scopes[0]["state"]["caller"].name == "ann"
