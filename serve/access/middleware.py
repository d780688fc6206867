"""The outermost layer of a replica: who may do what, how much of it, and with which body."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping

from serve.access.body import check_body
from serve.access.callers import Caller, Callers, apply_caller, ask_for_usage
from serve.access.cors import is_preflight, preflight, with_origin
from serve.access.errors import App, Message, Receive, Refusal, Send, bad_field, error_response
from serve.access.limits import Clock, Places
from serve.access.log import LOGGED, AccessLine, Log
from serve.access.reading import BODY, ClientLeft, check_headers, given_first, parse_object, read_body
from serve.access.routes import GENERATING, WITH_CHOICES, find_route
from serve.access.settings import AccessSettings
from serve.speculation.settings import CAP

BUSY_RETRY_S = 1
PROBES = ("/livez", "/readyz")  # answered also while there are no settings yet
CLIENT_LEFT = 499  # what the log calls a request whose sender left before it had an answer
# The key, which nothing behind needs, and headers by which vLLM lets a client choose its priority and its rank.
DROPPED = (b"authorization", b"proxy-authorization", b"x-vllm-priority", b"x-data-parallel-rank")
_BUSY = ((b"retry-after", str(BUSY_RETRY_S).encode()),)
_LENGTHS = (b"content-length", b"transfer-encoding")


class AccessMiddleware:
    """ASGI middleware around a replica's routes. Refused requests never reach `app`; the others find their caller in
    `scope["state"]["caller"]` (`name`, `scope`, `priority`, `charge(tokens)`); those with a JSON body find it parsed in
    `body`, and in `hide_usage` whether a stream tells its usage for this layer's sake alone.

    In order: preflights, the key (401), the route (404), the scope (403), places (503), rates (429), the body (408,
    413, 415, 400). Websockets are refused; lifespan events pass. With `settings` None all but the probes is 503 until
    `update` gives some. `keeps_caps()` says whether a request's cap on drafted tokens would be kept; else a request
    with one is refused. `log` takes one line a request.
    """

    def __init__(
        self,
        app: App,
        settings: AccessSettings | None,
        *,
        keeps_caps: Callable[[], bool] = lambda: True,
        log: Log = LOGGED,
        clock: Clock = time.monotonic,
        now: Clock = time.time,
    ) -> None:
        self._app, self._is_told, self._keeps_caps = app, settings is not None, keeps_caps
        self._settings = settings or AccessSettings()
        self._callers = Callers(self._settings, clock, now)
        self._places, self._log = Places(), log

    @property
    def inside(self) -> int:
        """Requests that hold a place in this replica, waiting or running."""
        return self._places.inside

    def update(self, settings: AccessSettings) -> None:
        """Follows other settings from the next request on; those inside go on."""
        self._settings, self._is_told = settings, True
        self._callers.update(settings)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "websockets are not served"})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        line = AccessLine(scope, send, self._log)
        reply = with_origin(line.send, headers, self._settings.cors_origins)
        try:
            if not self._is_told and scope["path"] not in PROBES:
                raise Refusal(503, "this replica is starting and has no access settings yet; try again", headers=_BUSY)
            if is_preflight(scope, headers):
                await preflight(scope, headers, self._settings.cors_origins)(scope, receive, line.send)
            else:
                await self._admit(scope, headers, receive, reply, line)
        except Refusal as refusal:
            await error_response(refusal)(scope, receive, reply)
        except ClientLeft:
            line.status = line.status or CLIENT_LEFT
        except asyncio.CancelledError:
            line.status = line.status or CLIENT_LEFT
            raise
        finally:
            line.status = line.status or 500  # what the server answers for an app that did not
            line.write()

    async def _admit(
        self, scope: Message, headers: Mapping[bytes, bytes], receive: Receive, send: Send, line: AccessLine
    ) -> None:
        route = find_route(scope["method"], scope["path"], scope.get("raw_path"))
        if route is not None and route.scope == "open":
            await self._app(_cleaned(scope), receive, send)
            return
        caller = self._callers.find(headers)
        line.caller = caller.name
        if route is None:
            raise Refusal(404, "there is no such route")
        if not caller.may(route.scope):
            raise Refusal(403, f"this key has the scope {caller.scope}; the route needs {route.scope}")
        inner = _cleaned(scope) | {"state": {**scope.get("state", {}), "caller": caller}}
        if not route.work:
            await self._app(inner, receive, send)
            return
        if self.inside >= self._settings.max_waiting:
            raise Refusal(503, "this replica has no room for more requests now; try again", headers=_BUSY)
        with self._places.hold():
            _check_rates(caller)
            inner, receive = await self._read(inner, headers, caller, receive, line)
            await self._app(inner, receive, send)

    async def _read(
        self,
        scope: Message,
        headers: Mapping[bytes, bytes],
        caller: Caller,
        receive: Receive,
        line: AccessLine,
    ) -> tuple[Message, Receive]:
        """The request with its checked body, whose first `receive` gives it whole."""
        limit = self._settings.max_body_bytes
        check_headers(headers, limit)
        raw = await read_body(receive, limit)
        body = parse_object(raw)
        check_body(body)
        if body.get("vllm_xargs") and not self._keeps_caps():
            raise bad_field("vllm_xargs", f"{CAP} would be ignored: this endpoint drafts without speculation.policy")
        if self._settings.log_requests:
            line.note(raw)
        is_changed = scope["path"] in GENERATING and apply_caller(body, caller)
        hides_usage = scope["path"] in WITH_CHOICES and ask_for_usage(body)
        if is_changed or hides_usage:
            raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        kept = [pair for pair in scope["headers"] if pair[0] not in _LENGTHS]
        sized = [*kept, (b"content-length", str(len(raw)).encode())]
        state = scope["state"] | {"hide_usage": hides_usage, BODY: body}
        whole = {"type": "http.request", "body": raw, "more_body": False}
        return scope | {"headers": sized, "state": state}, given_first([whole], receive)


def _check_rates(caller: Caller) -> None:
    refused = caller.rates.admit()
    if refused:
        what, seconds = refused
        wait = [(b"retry-after", str(seconds).encode())]
        raise Refusal(429, f"this key's {what} a minute are used up; try again in {seconds} s", headers=wait)


def _cleaned(scope: Message) -> Message:
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    return {**scope, "headers": [pair for pair in headers if pair[0] not in DROPPED]}
