"""The running endpoint as a promotion sees it, and the frozen problems sent to it."""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx

from jobs._traffic import paced
from pipeline.config import RunConfig
from pipeline.problems import Problem, sample_seed, with_suffix
from serve import client
from serve.policy import Policy, Wanted

LABEL = "gate-replay"


class LiveEndpoint:
    """The endpoint behind a dashboard. Every change has `client.change_deadline_s` to be confirmed."""

    def __init__(self, cfg: RunConfig, dashboard: str) -> None:
        self.dashboard, self.deadline_s = dashboard, client.change_deadline_s(cfg.serve.drain_deadline_s)

    def states(self) -> dict[str, dict[str, Any]]:
        """See `serve.client.status`."""
        return self.address().replicas

    def address(self) -> client.Endpoint:
        """Where it answers. UserError when it is not deployed."""
        return client.status(self.dashboard)

    def wanted(self) -> Wanted:
        """What the deployment asks its replicas to serve."""
        return client.wanted_now(client.details(self.dashboard))

    def start_canary(self, policy: Policy, replicas: int) -> None:
        """See `serve.client.start_canary`."""
        client.start_canary(self.dashboard, policy, replicas, self.deadline_s)

    def end_canary(self) -> None:
        """See `serve.client.end_canary`."""
        client.end_canary(self.dashboard, self.deadline_s)

    def swap(self, policy: Policy) -> float:
        """See `serve.client.swap`."""
        return client.swap(self.dashboard, policy, self.deadline_s).seconds


class Replayed:
    """Sends `gate.replay` frozen problems evenly over the soak, then goes on at that pace until it is stopped.

    Requests are labelled: their id begins with `gate-replay-`. `sent` and `failed` count them, by whatever reason.
    """

    def __init__(
        self, cfg: RunConfig, address: client.Endpoint, problems: Sequence[Problem], headers: Mapping[str, str]
    ) -> None:
        self.cfg, self.address, self.problems, self.headers = cfg, address, list(problems), dict(headers)
        self.sent = self.failed = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sends while the block runs, from a thread of its own; those under way at its end are dropped."""
        if not self.cfg.gate.replay:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._send(stop)), daemon=True, name="gate-replay")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=30)

    def whole(self) -> None:
        """Sends `gate.replay` of them and waits for their answers."""
        if self.cfg.gate.replay:
            asyncio.run(self._send(None))

    async def _send(self, stop: threading.Event | None) -> None:
        """Until `stop`; with None, as many as `gate.replay` says."""
        gate = self.cfg.gate
        every_s = gate.soak_s / gate.replay
        limit = httpx.Limits(max_connections=self.cfg.evaluation.concurrency, max_keepalive_connections=0)
        timeout = httpx.Timeout(self.cfg.evaluation.request_timeout_s)
        async with httpx.AsyncClient(limits=limit, timeout=timeout, trust_env=False) as http:
            await paced(
                partial(self._ask, http),
                self.problems,
                every_s,
                lambda number: stop.is_set() if stop else number >= gate.replay,
                at_most=self.cfg.evaluation.concurrency,
                drop=stop is not None,
            )

    async def _ask(self, http: httpx.AsyncClient, problem: Problem, number: int) -> None:
        cfg = self.cfg
        body = {
            "model": self.address.model_id,
            "messages": [{"role": "user", "content": with_suffix(problem.prompt, cfg.problems.prompt_suffix)}],
            "max_tokens": cfg.evaluation.max_new_tokens or cfg.rollout.max_new_tokens,
            "temperature": cfg.evaluation.temperature,
            "top_p": cfg.evaluation.top_p,
            "seed": sample_seed(f"{problem.id}/replay", number, cfg.run.seed),
        }
        headers = {**self.headers, "x-request-id": f"{LABEL}-{number}"}
        self.sent += 1
        try:
            reply = await http.post(f"{self.address.url}/v1/chat/completions", json=body, headers=headers)
            self.failed += not reply.is_success
        except httpx.HTTPError:
            self.failed += 1
