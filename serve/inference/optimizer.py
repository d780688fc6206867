"""`InferenceOptimizer`: inferences with levers for each request, none of which is ever dropped in silence."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, Unpack

from pipeline.config import RunConfig, UserError
from serve.inference.options import config_from
from serve.inference.request import Abilities, Ask, Levers, Message, ask_of, in_effect
from serve.inference.result import InferenceResult, Phase, Piece, Usage


class Backend(Protocol):
    """Who computes: `LocalEngine` or `RemoteEngine`."""

    who: str
    can: Abilities

    async def start(self) -> None: ...

    def replies(self, ask: Ask) -> AsyncIterator[tuple[Phase, str] | Usage]: ...

    async def close(self) -> None: ...


class InferenceOptimizer:
    """Inferences by an engine of this process (`config`: a RunConfig or its file; `options`: by vLLM's names, such as
    `kv_cache_dtype="fp8"`), or by a running endpoint (`base_url`, `api_key`, `model`).

    Use it as `async with InferenceOptimizer(...) as optimizer`, on one event loop. Calls that run at the same time are
    computed together. UserError for options that the engine would ignore.
    """

    def __init__(
        self,
        config: RunConfig | str | Path | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        **options: Any,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._inside = 0
        self._starting: asyncio.Task[None] | None = None
        self._backend = self._backend_for(config, base_url, api_key, model, options)

    def _backend_for(
        self, config: Any, base_url: str | None, key: str | None, model: str | None, options: dict[str, Any]
    ) -> Backend:
        if base_url is None:
            from serve.inference.local_engine import LocalEngine

            if key:
                raise UserError("api_key is for an endpoint: give its base_url too")
            named = {} if model is None else {"model": model}
            return LocalEngine(config_from(config, named | options), self.counters)
        from serve.inference.endpoint import RemoteEngine

        config_from(None, options)  # names that exist nowhere are told as such
        if config is not None or options:
            asked = "config" if config is not None else next(iter(options))
            raise UserError(f"{asked} belongs to an engine of one's own; an endpoint's is set where it is deployed")
        return RemoteEngine(base_url, key, model, self.counters)

    async def __aenter__(self) -> "InferenceOptimizer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Loads the model, or connects; later calls wait for the first. Raises as the backend's `start`."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._backend.start())
        await asyncio.shield(self._starting)

    async def close(self) -> None:
        """Ends the engine, or the connections."""
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])
        await self._backend.close()

    @property
    def can(self) -> Abilities:
        """What the engine can do for one request; known once it has started."""
        return self._backend.can

    async def infer(self, prompt: str | Sequence[Message], **asked: Unpack[Levers]) -> InferenceResult:
        """The whole reply to a text or to chat messages.

        What `asked` leaves out is left to the engine. UserError for a lever that would not be in effect, TimeoutError
        after `timeout_s` seconds (it says whom it waited for). A cancelled or late request is aborted in the engine.
        """
        async with aclosing(self.stream(prompt, **asked)) as pieces:
            async for piece in pieces:
                if piece.result is not None:
                    return piece.result
        raise RuntimeError(f"{self._backend.who} gave no result")

    async def stream(self, prompt: str | Sequence[Message], **asked: Unpack[Levers]) -> AsyncIterator[Piece]:
        """`infer` in pieces of text, as they come; the last piece has the result. Leaving it aborts the request."""
        ask = ask_of(prompt, asked)
        await self.start()
        reply = _Reply(ask, in_effect(ask, self.can))
        self.counters["requests"] += 1
        self._inside += 1
        try:
            async with aclosing(self._backend.replies(ask)) as parts:
                while (part := await self._next(parts, reply)) is not None:
                    yield reply.piece(part)
        finally:
            self._inside -= 1

    async def _next(self, parts: AsyncIterator[Any], reply: "_Reply") -> tuple[Phase, str] | Usage | None:
        """The next part, None at the end. What the caller does between two parts counts towards the time, too."""
        try:
            async with asyncio.timeout_at(reply.began + reply.ask.timeout_s):
                return await anext(parts, None)
        except TimeoutError:
            self.counters["timeouts"] += 1
            raise TimeoutError(
                f"{self._backend.who} gave no whole reply within {reply.ask.timeout_s:g} s: {reply.length} characters "
                f"of text had come, {self._inside} requests were under way"
            ) from None


class _Reply:
    """One reply on its way: the clock, which starts here, and the text that came."""

    def __init__(self, ask: Ask, effective: dict[str, Any]) -> None:
        self.ask, self.effective, self.began = ask, effective, _now()
        self.first: float | None = None
        self.text: dict[Phase, str] = {"reasoning": "", "answer": ""}

    @property
    def length(self) -> int:
        return sum(map(len, self.text.values()))

    def piece(self, part: tuple[Phase, str] | Usage) -> Piece:
        now = _now() - self.began
        if isinstance(part, Usage):
            return Piece("", result=self._result(part, now))
        self.first = self.first or now
        phase, text = part
        self.text[phase] += text
        return Piece(text, phase)

    def _result(self, usage: Usage, now: float) -> InferenceResult:
        return InferenceResult(
            text=self.text["answer"],
            reasoning=self.text["reasoning"],
            prompt_tokens=usage.prompt_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            answer_tokens=usage.answer_tokens,
            acceptance=usage.acceptance,
            first_token_s=self.first or now,
            total_s=now,
            weights=usage.weights,
            finish=usage.finish,
            effective=self.effective,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
