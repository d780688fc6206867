"""A small app behind the access layer, and a client for it, without a socket."""

import json
from dataclasses import dataclass, field

import httpx

from serve.access import AccessMiddleware, AccessSettings
from serve.access.keys import Key, digest_of
from serve.access.reading import BODY

INFER, ADMIN, OLD = "sk-" + "a" * 43, "sk-" + "b" * 43, "sk-" + "c" * 43
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


@dataclass
class Seen:
    """What reached the app: one entry a request."""

    scopes: list = field(default_factory=list)
    bodies: list = field(default_factory=list)


def key(secret, name, scope="infer", **more):
    return Key(name, digest_of(secret), scope, 1.0, **more)


KEYS = (key(INFER, "ann"), key(ADMIN, "root", "admin"), key(OLD, "old", expires=900.0))


def app_noting(seen, status=200):
    async def app(scope, receive, send):
        body, more = b"", scope["method"] == "POST"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if BODY in scope.get("state", {}):  # vLLM's handlers are given this one, all else reads the bytes
            assert scope["state"][BODY] == json.loads(body)
        seen.scopes.append(scope)
        seen.bodies.append(body)
        head = [(b"content-type", b"application/json"), (b"x-policy-version", b"v1-0")]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": b'{"ok":true}'})

    return app


def layered(app=None, clock=None, **settings):
    """The access layer over a noting app: the layer and what the app saw."""
    seen = Seen()
    layer = AccessMiddleware(
        app or app_noting(seen), AccessSettings(**settings), clock=clock or Clock(), now=Clock(1000.0)
    )
    return layer, seen


async def ask(layer, method, path, *, token=None, headers=None, **more):
    given = dict(headers or {})
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    transport = httpx.ASGITransport(layer)
    async with httpx.AsyncClient(transport=transport, base_url="http://endpoint") as client:
        return await client.request(method, path, headers=given, **more)


async def ask_raw(layer, method, path, *, headers=(), messages=(), raw_path=None):
    """Sends a request that no client library would build; returns status and body of the reply."""
    scope = {"type": "http", "method": method, "path": path, "headers": list(headers), "query_string": b"", "state": {}}
    if raw_path is not None:
        scope["raw_path"] = raw_path
    queue, sent = list(messages) or [{"type": "http.request", "body": b"", "more_body": False}], []

    async def receive():
        return queue.pop(0) if queue else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await layer(scope, receive, send)
    status = next((m["status"] for m in sent if m["type"] == "http.response.start"), 0)
    return status, b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")


def error_of(reply):
    error = json.loads(reply.content if hasattr(reply, "content") else reply)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
