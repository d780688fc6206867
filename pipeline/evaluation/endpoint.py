"""Asks an OpenAI-compatible endpoint and turns its replies into traces, by token ids."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.config import Evaluation, bearer
from pipeline.problems import Problem, sample_seed, with_suffix
from pipeline.traces import Stop, Trace, VersionSpan

KEY_VARIABLE = "DECS_API_KEY"
STOPS = {"stop": Stop.EOS, "length": Stop.LENGTH}


def api_key() -> str | None:
    """The key in DECS_API_KEY, which every command sends to the endpoint that it was told to ask."""
    return os.environ.get(KEY_VARIABLE) or None


def key_headers() -> dict[str, str]:
    """`api_key` as HTTP headers; none without one."""
    return bearer(api_key())


@dataclass
class Replies:
    """What came back: a trace a served request, and the requests that failed, by reason."""

    traces: list[Trace] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """Requests sent."""
        return len(self.traces) + len(self.failures)


def version_of(fingerprint: str | None) -> int:
    """The policy version in a reply's `system_fingerprint` (`v<version>-<digest>`); ValueError without one."""
    if not fingerprint or not fingerprint.startswith("v"):
        raise ValueError(f"the reply does not say which weights made it (system_fingerprint={fingerprint!r})")
    return int(fingerprint[1:].split("-")[0])


def to_trace(problem: Problem, sample: int, reply: dict) -> Trace:
    """A trace from a chat completion asked for with `return_token_ids`; log-probs are not asked for (zeros)."""
    if not reply.get("choices"):
        raise ValueError("the reply holds no choices")
    choice = reply["choices"][0]
    token_ids = choice.get("token_ids")
    if token_ids is None:
        raise ValueError("the endpoint does not return token ids; it must honour `return_token_ids`")
    stop = STOPS.get(choice["finish_reason"], Stop.ABORT)
    if stop is Stop.ABORT:
        raise ValueError(f"the reply was cut short (finish_reason={choice['finish_reason']!r})")
    message = choice["message"]
    text = (message.get("reasoning") or message.get("reasoning_content") or "") + (message.get("content") or "")
    return Trace(
        problem_id=problem.id,
        sample=sample,
        prompt_ids=tuple(reply.get("prompt_token_ids") or ()),
        token_ids=tuple(token_ids),
        logprobs=(0.0,) * len(token_ids),
        versions=(VersionSpan(version_of(reply.get("system_fingerprint")), 0, len(token_ids)),),
        stop=stop,
        text=text,
    )


class EndpointClient:
    """A thin asynchronous client that never retries, so that every failure is seen and counted.

    `marks` counts usable replies by the mark of their weights (`v<version>-<digest>`), in order of appearance. `extra`
    goes into the body of every request.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        options: Evaluation,
        max_tokens: int,
        suffix: str = "",
        extra: Mapping[str, object] | None = None,
    ) -> None:
        from openai import AsyncOpenAI

        self.model, self.options, self.max_tokens, self.suffix = model, options, max_tokens, suffix
        self.extra = {**(extra or {}), "return_token_ids": True}
        self.marks: Counter[str] = Counter()
        self.client = AsyncOpenAI(
            base_url=f"{base_url.rstrip('/')}/v1",
            api_key=api_key() or "none",
            max_retries=0,
            timeout=options.request_timeout_s,
        )

    async def ask(self, problem: Problem, sample: int, seed: int) -> Trace:
        """One reply to one problem. Raises openai's errors and ValueError for a reply that cannot be used."""
        return (await self.ask_marked(problem, sample, seed))[0]

    async def ask_marked(self, problem: Problem, sample: int, seed: int) -> tuple[Trace, str]:
        """`ask`, and the mark of the weights that replied."""
        reply = await self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": with_suffix(problem.prompt, self.suffix)}],
            max_tokens=self.max_tokens,
            temperature=self.options.temperature,
            top_p=self.options.top_p,
            seed=sample_seed(f"{problem.id}/{sample}", 0, seed),
            extra_body=self.extra,
        )
        trace, mark = to_trace(problem, sample, reply.model_dump()), str(reply.system_fingerprint)
        self.marks[mark] += 1
        return trace, mark

    async def ask_all(
        self, problems: Sequence[Problem], seed: int, on_done: Callable[[int], object] = lambda count: None
    ) -> Replies:
        """`options.samples` replies to each problem."""
        replies = Replies()
        async for reply in self.replies([(p, s) for p in problems for s in range(self.options.samples)], seed):
            if isinstance(reply, str):
                replies.failures.append(reply)
            else:
                replies.traces.append(reply[0])
            on_done(1)
        return replies

    async def replies(self, wanted: Sequence[tuple[Problem, int]], seed: int) -> AsyncIterator[tuple[Trace, str] | str]:
        """For each (problem, sample), as they come: the trace and its mark, or why the request failed.

        `options.concurrency` requests at a time; those still running are dropped when the caller stops early.
        """
        from openai import OpenAIError

        gate = asyncio.Semaphore(self.options.concurrency)

        async def one(problem: Problem, sample: int) -> tuple[Trace, str] | str:
            async with gate:
                try:
                    return await self.ask_marked(problem, sample, seed)
                except (OpenAIError, ValueError) as error:
                    return f"{type(error).__name__}: {error}"

        tasks = [asyncio.create_task(one(problem, sample)) for problem, sample in wanted]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Closes connections."""
        await self.client.close()
