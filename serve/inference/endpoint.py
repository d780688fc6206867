"""A running endpoint that answers inferences: OpenAI's protocol over HTTP, streamed."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import httpx

from pipeline.config import UserError, bearer, check_address, check_key, server_root
from serve.inference.request import CAP, Abilities, Ask, abilities
from serve.inference.result import InferenceFailed, Phase, Usage, acceptance_of

CHAT, MODELS, EFFECTIVE = "/v1/chat/completions", "/v1/models", "/admin/effective-config"
CONNECT_S = 10.0
WRONG = (400, 401, 403, 404, 413, 422)  # what another try would not mend
MALFORMED = (AttributeError, KeyError, TypeError, ValueError)  # what reading a foreign server's JSON ends in

Read = TypeVar("Read")


class RemoteEngine:
    """The engine behind a server's address (with or without /v1). Lives on one event loop.

    What the engine can do for a request is asked of `/admin/effective-config`; a server that does not tell, or a key
    that may not ask, leaves it unknown, and levers that depend on it are refused.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None,
        model: str | None,
        counters: Counter[str],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        check_address(base_url, "base_url")
        check_key(key, "api_key")
        self.url = server_root(base_url)
        self._http = httpx.AsyncClient(
            headers=bearer(key),
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
            transport=transport,
        )
        self._model = model
        self.who, self.counters, self.can = f"the endpoint {self.url}", counters, Abilities()

    async def start(self) -> None:
        """Finds the model and what its engine can do. UserError when nothing answers, or serves another model."""
        told = await self._get(MODELS)
        try:
            served = [str(entry["id"]) for entry in told.get("data", ())]
        except MALFORMED:
            raise UserError(f"{self.who} answers {MODELS} with no list of models: correct the address") from None
        if self._model is None and len(served) == 1:
            self._model = served[0]
        if self._model not in served:
            raise UserError(f"{self.who} serves {', '.join(served) or 'nothing'}, not {self._model}: name one of these")
        self.can = await self._told()

    async def _told(self) -> Abilities:
        """Unknown where the server has no such route, or the key may not ask."""
        try:
            reply = await self._http.get(self.url + EFFECTIVE, timeout=CONNECT_S)
        except httpx.HTTPError as error:
            raise UserError(f"{self.who} does not answer {EFFECTIVE} ({error}): see whether it still runs") from None
        try:
            return abilities(reply.json()["effective"]) if reply.is_success else Abilities()
        except MALFORMED:
            return Abilities()

    async def _get(self, route: str) -> Any:
        try:
            reply = await self._http.get(self.url + route, timeout=CONNECT_S)
            reply.raise_for_status()
            return reply.json()
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise UserError(f"{self.who} answers {route} with {status}: give a key of it, or another address") from None
        except ValueError:
            raise UserError(f"{self.who} answers {route} with no JSON: correct the address") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UserError(f"{self.who} does not answer {route} ({error}): start it, or correct the address") from None

    async def replies(self, ask: Ask) -> AsyncIterator[tuple[Phase, str] | Usage]:
        """As `LocalEngine.replies`; leaving the iterator closes the connection, on which the endpoint aborts.

        UserError for what the endpoint refuses, InferenceFailed for what it fails at.
        """
        reading, done = _Reading(), False
        try:
            async with self._http.stream("POST", self.url + CHAT, json=self._body(ask)) as response:
                await self._check(response)
                async for line in response.aiter_lines():
                    done = done or line == "data: [DONE]"
                    if line.startswith("data: {"):
                        for part in self._understood(reading.parts, line.removeprefix("data: ")):
                            yield part
        except httpx.HTTPError as error:
            raise InferenceFailed(f"{self.who} broke the connection off ({type(error).__name__}: {error})") from error
        finally:
            self.counters["aborted"] += not done
        if not done or reading.usage is None:
            raise InferenceFailed(f"{self.who} ended its reply before it was whole; ask again")
        yield self._understood(reading.result)

    def _understood(self, read: Callable[..., Read], *given: str) -> Read:
        try:
            return read(*given)
        except MALFORMED as error:
            why = f"{type(error).__name__}: {error}"
            raise InferenceFailed(f"{self.who} sent what is no event of a chat completion ({why})") from error

    async def _check(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        text = (await response.aread()).decode(errors="replace")
        try:
            text = json.loads(text)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            text = text[:300]
        kind = UserError if response.status_code in WRONG else InferenceFailed
        raise kind(f"{self.who} answers {response.status_code}: {text}")

    def _body(self, ask: Ask) -> dict[str, Any]:
        given = {
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "seed": ask.seed,
            "thinking_token_budget": ask.thinking_budget,
            "priority": ask.priority or None,
            "vllm_xargs": None if ask.draft_cap is None else {CAP: ask.draft_cap},
        }
        always = {"model": self._model, "messages": list(ask.messages), "stream": True}
        counted = {"stream_options": {"include_usage": True}, "return_token_ids": True}
        return always | counted | {name: value for name, value in given.items() if value is not None}

    async def close(self) -> None:
        """Closes the connections; the endpoint goes on."""
        await self._http.aclose()


class _Reading:
    """What the events of one stream have told so far."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] | None = None
        self._weights: str | None = None
        self._finish: str | None = None
        self._drafts: dict[str, Any] = {}
        self._thought = 0  # tokens of events that hold reasoning

    def parts(self, line: str) -> list[tuple[Phase, str]]:
        event = json.loads(line)
        if error := event.get("error"):
            told = error.get("message", error) if isinstance(error, dict) else error
            raise InferenceFailed(f"the endpoint ended the reply: {told}")
        self._weights = event.get("system_fingerprint") or self._weights
        self.usage = event.get("usage") or self.usage
        self._drafts = (event.get("metrics") or {}).get("speculative_decoding") or self._drafts
        found: list[tuple[Phase, str]] = []
        for choice in event.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta") or {}
            reasoning = delta.get("reasoning") or delta.get("reasoning_content")
            if reasoning:
                self._thought += len(choice.get("token_ids") or ())
                found.append(("reasoning", _text(reasoning)))
            if delta.get("content"):
                found.append(("answer", _text(delta["content"])))
        return found

    def result(self) -> Usage:
        usage = self.usage or {}
        told = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        output = _count(usage.get("completion_tokens", 0))
        reasoning = min(_count(told) or self._thought, output)
        return Usage(
            prompt_tokens=_count(usage.get("prompt_tokens", 0)),
            reasoning_tokens=reasoning,
            answer_tokens=output - reasoning,
            acceptance=acceptance_of(self._drafts),
            weights=self._weights,
            finish=self._finish,
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no number of tokens")
    return value
