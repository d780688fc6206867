"""A trickle of real requests against the endpoint while something else goes on."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from openai import OpenAIError

from pipeline.config import RunConfig
from pipeline.evaluation import EndpointClient
from pipeline.problems import Problem
from pipeline.traces import Trace


async def paced(
    ask: Callable[[Problem, int], Coroutine[Any, Any, None]],
    problems: Sequence[Problem],
    every_s: float,
    over: Callable[[int], bool],
    *,
    at_most: int | None = None,
    drop: bool = False,
) -> None:
    """Starts `ask(problem, number)` every `every_s` seconds, the problems in turn, until `over(number)`; at most
    `at_most` at a time. Then waits for those under way, or drops them."""
    running: set[asyncio.Task[None]] = set()
    for number, problem in enumerate(itertools.cycle(problems)):
        while at_most is not None and len(running) >= at_most and not over(number):
            await asyncio.wait(running, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        if over(number):
            break
        task = asyncio.create_task(ask(problem, number))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(every_s)
    if drop:
        for task in running:
            task.cancel()
    await asyncio.gather(*running, return_exceptions=drop)


class Trickle(threading.Thread):
    """Sends one request every `every_s` seconds until stopped, and counts what came back by policy version."""

    def __init__(
        self, cfg: RunConfig, url: str, model_id: str, problems: Sequence[Problem], every_s: float = 3.0
    ) -> None:
        super().__init__(daemon=True, name="trickle")
        self.cfg, self.url, self.model_id = cfg, url, model_id
        self.problems, self.every_s = list(problems), every_s
        self.sent, self.failures = 0, []
        self.versions: Counter[int] = Counter()
        self.stopping = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        asyncio.run(self._send())

    async def _send(self) -> None:
        cfg = self.cfg
        client = EndpointClient(
            self.url, self.model_id, cfg.evaluation, cfg.rollout.max_new_tokens, cfg.problems.prompt_suffix
        )
        ask = partial(self._one, client)
        await paced(ask, self.problems, self.every_s, lambda number: self.stopping.is_set())
        await client.close()

    async def _one(self, client: EndpointClient, problem: Problem, number: int) -> None:
        self.sent += 1
        try:
            self._note(await client.ask(problem, number, seed=self.cfg.run.seed))
        except (OpenAIError, ValueError) as error:
            self.failures.append(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}")

    def _note(self, trace: Trace) -> None:
        self.versions[trace.versions[0].version] += 1

    def stop(self) -> None:
        """No further requests; waits for those under way."""
        self.stopping.set()
        self.join(timeout=self.cfg.evaluation.request_timeout_s + 10)
