"""The thread that owns a vLLM engine: builds it, steps it, and runs everything else between two steps."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline.engine.requests import EngineBroken

T = TypeVar("T")
IDLE_WAIT_S = 1.0
log = logging.getLogger(__name__)


@dataclass
class _Work:
    """Something to run on the engine's thread. `when_idle` waits until no request is unfinished."""

    run: Callable[[Any], Any]
    future: Future
    when_idle: bool = False
    request_id: str | None = None


class StepLoop:
    """Drives one in-process `LLMEngine` from one thread; callers on other threads get futures.

    Between two steps nothing is in flight on the device, so work submitted here (a weight update above all) sees the
    engine at rest and needs no pause protocol. New requests that arrive while an idle-only job waits are held back
    until it has run, so the wait ends.
    """

    def __init__(self, build: Callable[[], Any], name: str) -> None:
        self.name = name
        self.steps = 0
        self.failure: BaseException | None = None
        self.last_step_at = time.monotonic()
        self._build = build
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._held: list[_Work] = []
        self._barrier: _Work | None = None
        self._pending: dict[str, Future] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self.started: Future = _running()

    def start(self) -> Future:
        """Begin; the future resolves with the engine once it is built."""
        self._thread.start()
        return self.started

    def submit(self, run: Callable[[Any], T], when_idle: bool = False) -> "Future[T]":
        """Run `run(engine)` between two steps. EngineBroken if the loop has ended."""
        return self._put(_Work(run, _running(), when_idle))

    def request(self, request_id: str, prompt: object, params: object) -> Future:
        """Add a request; the future resolves with its final output. `request_id` must be unused."""

        def add(engine: Any) -> None:
            engine.add_request(request_id, prompt, params)

        return self._put(_Work(add, _running(), request_id=request_id))

    def abort(self, request_ids: list[str]) -> None:
        """Drop requests; their futures never resolve (whoever aborts has stopped waiting)."""
        with contextlib.suppress(EngineBroken):  # an engine that has ended holds no requests
            self.submit(lambda engine: self._abort(engine, request_ids))

    def withdraw(self, future: Future) -> Future:
        """Take back an idle-only job that has not begun; resolves with whether that succeeded."""
        return self.submit(lambda engine: self._withdraw(engine, future))

    def fail(self, error: BaseException) -> None:
        """End the loop: every waiting and later call raises EngineBroken."""
        with self._lock:
            self.failure = self.failure or error
        self._inbox.put(None)

    def stop(self, timeout: float = 30.0) -> bool:
        """End the loop and join its thread; False if it did not end in time."""
        self.fail(EngineBroken(f"engine {self.name} was shut down"))
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def unfinished(self) -> int:
        """Requests handed in and not yet answered."""
        return len(self._pending) + len(self._held)

    def _put(self, work: _Work) -> Future:
        with self._lock:
            if self.failure is not None:
                raise EngineBroken(f"engine {self.name} takes no traffic: {self.failure}") from self.failure
            self._inbox.put(work)
        return work.future

    def _run(self) -> None:
        engine = None
        try:
            engine = self._build()
            self.started.set_result(engine)
            self._loop(engine)
        except BaseException as error:  # noqa: BLE001 - whatever ends the loop is told to everyone who waits
            self._end(error)
        finally:
            if engine is not None:
                _shut_down(engine)

    def _loop(self, engine: Any) -> None:
        while self.failure is None:
            busy = engine.has_unfinished_requests()
            if not busy and self._barrier is not None:
                self._release(engine)
                continue
            self._drain_inbox(engine, block=not busy)
            if self.failure is None and engine.has_unfinished_requests():
                self._step(engine)
        raise self.failure

    def _drain_inbox(self, engine: Any, block: bool) -> None:
        while True:
            try:
                work = self._inbox.get(block=block, timeout=IDLE_WAIT_S if block else None)
            except queue.Empty:
                return
            if work is None:
                return
            block = False
            self._accept(engine, work)
            if self._barrier is not None and not engine.has_unfinished_requests():
                return

    def _accept(self, engine: Any, work: _Work) -> None:
        if work.when_idle:
            if self._barrier is not None:
                work.future.set_exception(RuntimeError(f"engine {self.name} already waits to be idle"))
            else:
                self._barrier = work
        elif work.request_id is not None and self._barrier is not None:
            self._held.append(work)
        else:
            self._execute(engine, work)

    def _execute(self, engine: Any, work: _Work) -> None:
        try:
            result = work.run(engine)
        except Exception as error:  # noqa: BLE001 - handed to the caller through the future
            work.future.set_exception(error)
            return
        if work.request_id is None:
            work.future.set_result(result)
        else:
            self._pending[work.request_id] = work.future

    def _release(self, engine: Any) -> None:
        """Run the job that waited for the engine to be idle, then let held requests in."""
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            self._execute(engine, barrier)
        held, self._held = self._held, []
        for work in held:
            self._execute(engine, work)

    def _withdraw(self, engine: Any, future: Future) -> bool:
        if self._barrier is None or self._barrier.future is not future:
            return False
        self._barrier = None
        self._release(engine)
        return True

    def _step(self, engine: Any) -> None:
        outputs = engine.step()
        self.steps += 1
        self.last_step_at = time.monotonic()
        for output in outputs:
            future = self._pending.pop(output.request_id, None) if output.finished else None
            if future is not None:
                future.set_result(output)

    def _abort(self, engine: Any, request_ids: list[str]) -> None:
        known = [request_id for request_id in request_ids if self._pending.pop(request_id, None) is not None]
        self._held = [work for work in self._held if work.request_id not in request_ids]
        if known:
            engine.abort_request(known)

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self.failure = error = self.failure or error
            waiting = [*self._pending.values(), *(work.future for work in self._held)]
            waiting += [self._barrier.future] if self._barrier is not None else []
            while not self._inbox.empty():
                work = self._inbox.get()
                waiting += [work.future] if work is not None else []
            self._pending.clear()
            self._held.clear()
        for future in [self.started, *waiting]:
            if not future.done():
                future.set_exception(_told(error, self.name))


def _running() -> Future:
    """A future nobody can cancel from outside, so that resolving it never races with a cancellation."""
    future: Future = Future()
    future.set_running_or_notify_cancel()
    return future


def _told(error: BaseException, name: str) -> EngineBroken:
    if isinstance(error, EngineBroken):
        return error
    broken = EngineBroken(f"engine {name} failed: {type(error).__name__}: {error}")
    broken.__cause__ = error
    return broken


def _shut_down(engine: Any) -> None:
    try:
        engine.engine_core.shutdown()
        engine.renderer.shutdown()
    except Exception:
        log.exception("the engine did not shut down cleanly")
