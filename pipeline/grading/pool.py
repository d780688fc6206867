"""Worker processes that compare answers under a hard deadline.

sympy cannot be interrupted, and alarms work in main threads only; so each comparison runs in a process of its own
kind, started fresh (not forked, and without importing the caller's main module), and a comparison that runs past its
deadline ends with its process. Calls may come from any thread; a call that finds all workers busy waits for a seat.
"""

import atexit
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, LifoQueue

from pipeline.grading.verdict import Failure, Verdict

log = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 120.0  # loading sympy takes 3 s alone and much longer on a crowded machine
SEAT_DEADLINE_S = 120.0  # for a free worker
TEXT_LIMIT = 4000  # characters of one answer; a request always fits a pipe's buffer


@dataclass(frozen=True)
class Reply:
    """A verdict, and for UNKNOWN why."""

    verdict: Verdict
    failure: Failure | None = None
    detail: str = ""


class _Worker:
    """One process and its two pipes. Used by one thread at a time."""

    def __init__(self, command: list[str]) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        self.ready = False
        self._buffer = b""

    def ask(self, answer: str, gold: str, deadline_s: float) -> Reply:
        """Compare; the deadline counts from when the worker has loaded its libraries."""
        if not self.ready:
            if self._line(START_DEADLINE_S) is None:
                return self._lost(f"a grading worker did not start within {START_DEADLINE_S:.0f} s")
            self.ready = True
        request = json.dumps({"answer": answer, "gold": gold, "deadline_s": deadline_s}) + "\n"
        try:
            self.process.stdin.write(request.encode())
            self.process.stdin.flush()
        except OSError as error:
            return self._lost(f"a grading worker is gone: {error}")
        line = self._line(deadline_s)
        if line is not None:
            reply = json.loads(line)
            reason = Failure(reply["reason"]) if "reason" in reply else None
            return Reply(Verdict(reply["verdict"]), reason, reply.get("detail", ""))
        if self.process.poll() is not None:
            return self._lost(f"a grading worker died with status {self.process.returncode}")
        return Reply(Verdict.UNKNOWN, Failure.DEADLINE, f"no verdict within {deadline_s} s")

    def _lost(self, detail: str) -> Reply:
        return Reply(Verdict.UNKNOWN, Failure.POOL, detail)

    def _line(self, deadline_s: float) -> bytes | None:
        """Next line of the worker, None at its end or the deadline."""
        end = time.monotonic() + deadline_s
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                self.process.wait(timeout=5)
                return None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def end(self) -> None:
        """Kill the process and take in its status."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:  # unsent bytes of a dead worker
                log.debug("pipe of grading worker %d closed unclean", self.process.pid)


class Pool:
    """At most `workers` processes, started when first needed and replaced when lost."""

    def __init__(self, workers: int = 1, deadline_s: float = 5.0, command: list[str] | None = None) -> None:
        self.deadline_s = deadline_s
        self._command = command or [sys.executable, "-m", "pipeline.grading.worker"]
        self._lock = threading.Lock()
        self._alive: set[_Worker] = set()
        self._closed = False
        self._seats: LifoQueue[_Worker | None] = LifoQueue()
        for _ in range(workers):
            self._seats.put(None)

    def compare(self, answer: str, gold: str) -> Reply:
        """Whether two answers are the same, by algebra. Never raises and never waits longer than its deadlines."""
        if len(gold) > TEXT_LIMIT:
            return Reply(Verdict.UNKNOWN, Failure.GOLD, f"the reference answer has {len(gold)} characters")
        if len(answer) > TEXT_LIMIT:
            return Reply(Verdict.WRONG)
        try:
            worker = self._seats.get(timeout=SEAT_DEADLINE_S)
        except Empty:
            return Reply(Verdict.UNKNOWN, Failure.POOL, f"no grading worker was free within {SEAT_DEADLINE_S:.0f} s")
        keep = None
        try:
            keep, reply = self._ask(worker, answer, gold)
        except (OSError, ValueError) as error:  # no process to be had, or a reply that is none
            reply = Reply(Verdict.UNKNOWN, Failure.POOL, f"{type(error).__name__}: {error}")
        finally:
            self._seats.put(keep)
        if reply.failure is not None:
            log.warning("answer not graded (%s): %s", reply.failure, reply.detail)
        return reply

    def _ask(self, worker: _Worker | None, answer: str, gold: str) -> tuple[_Worker | None, Reply]:
        """One comparison, and the worker for the next: a fresh one where this one was lost."""
        if worker is None or worker.process.poll() is not None:  # never started, or ended while idle
            if worker is not None:
                self._end(worker)
            worker = self._start()
        try:
            reply = worker.ask(answer, gold, self.deadline_s)
        except (OSError, ValueError):
            self._end(worker)
            raise
        if reply.failure not in (Failure.DEADLINE, Failure.POOL):
            return worker, reply
        self._end(worker)
        return (self._start() if reply.failure is Failure.DEADLINE else None), reply

    def _start(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise OSError("the grading pool is closed")
            worker = _Worker(self._command)
            self._alive.add(worker)
            return worker

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        worker.end()

    def close(self) -> None:
        """End every worker. Later comparisons are UNKNOWN."""
        with self._lock:
            self._closed, alive = True, list(self._alive)
            self._alive.clear()
        for worker in alive:
            worker.end()


_shared: Pool | None = None
_shared_lock = threading.Lock()


def shared_pool() -> Pool:
    """The pool of this process, made on first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Pool()
        return _shared


def configure(workers: int, deadline_s: float) -> None:
    """Replace this process's pool (grading.workers, grading.deadline_s)."""
    global _shared
    with _shared_lock:
        old, _shared = _shared, Pool(workers, deadline_s)
    if old is not None:
        old.close()


def close() -> None:
    """End this process's workers; the next comparison starts new ones."""
    global _shared
    with _shared_lock:
        old, _shared = _shared, None
    if old is not None:
        old.close()


def _forget() -> None:
    """After a fork the workers belong to the parent."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()


atexit.register(close)
os.register_at_fork(after_in_child=_forget)
