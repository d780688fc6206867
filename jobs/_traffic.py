"""A trickle of real requests against the endpoint while something else goes on."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence

from openai import OpenAIError

from pipeline.config import RunConfig
from pipeline.evaluation import EndpointClient
from pipeline.problems import Problem
from pipeline.traces import Trace


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
        waiting: set[asyncio.Task[None]] = set()
        for number, problem in enumerate(itertools.cycle(self.problems)):
            if self.stopping.is_set():
                break
            task = asyncio.create_task(self._one(client, problem, number))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(self.every_s)
        await asyncio.gather(*waiting)
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
