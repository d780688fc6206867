"""The disk tier as vLLM's tiering manager sees it (`SecondaryTierManager` of 0.32); on CPU and GPU alike.

Everything here is called from the scheduler's thread and must not block: files are probed in vLLM's lookup thread and
read and written in a pool of threads, straight from and into the host pool's memory.

A reset (vLLM's `reset_prefix_cache(reset_connector=True)`, part of every swap of weights) drains what is under way and
turns to the root of the weights that the replica has marked; without a new mark the tier stays off until there is one.
"""

import json
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import vllm
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from serve.kv_tier.block_store import COUNTS, BlockStore, Counts
from serve.kv_tier.janitor import PERIOD_S, tidy
from serve.kv_tier.naming import engine_digest, root_name
from serve.kv_tier.quota import Quota
from serve.kv_tier.reporter import Every, Reporter
from serve.kv_tier.weights_mark import marks_dir, read_mark

DRAIN_DEADLINE_S = 60.0

logger = logging.getLogger(__name__)


class DiskTier(SecondaryTierManager):
    """`root_dir` and `max_bytes`: where the files are and how many bytes of them there may be, over all engines there.

    `settings` is the digest of the options that decide a block's bytes; `threads` read and write.
    """

    medium = Medium.STORAGE

    def __init__(self, *, root_dir: str, max_bytes: int, threads: int, settings: str, **facts: Any) -> None:
        super().__init__(**facts)
        spec = self._offloading_spec
        self._engine = engine_digest(_engine_parts(spec.config, settings, self.block_size_bytes))
        self._quota, self.counts = Quota(Path(root_dir), max_bytes), Counts((*COUNTS, "roots_removed"))
        self._marks = marks_dir(spec.extra_config)
        self._seen: str | None = None
        self._store: BlockStore | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kv-disk")
        self._finished: queue.SimpleQueue[tuple[JobResult, set[OffloadKey]]] = queue.SimpleQueue()
        self._under_way, self._idle = 0, threading.Condition()
        self._lookups = _Lookups(self)
        self._janitor = Every(PERIOD_S, self._tidy, "kv-janitor")
        self._reporter = Reporter(self._marks, "disk", self.state)

    def state(self) -> dict[str, Any]:
        """Counters, the bytes held on the path and the root in use (None: off, no weights are marked)."""
        root = self._store.root if self._store else None
        failed = self._janitor.failures
        return {**self.counts.all(), "janitor_failures": failed, "bytes": self._quota.used(), "root": root}

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Whether there is a file for `key`; RETRY until the lookup thread has seen."""
        if self._store is None:
            return LookupResult.MISS
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def there(self, key: OffloadKey) -> bool:
        """In the lookup thread."""
        store = self._store
        return store is not None and store.has(key)

    def submit_store(self, job_metadata: TransferJob) -> None:
        """A block that finds no room is not kept, which is no failure."""
        store = self._store

        def keep(key: OffloadKey, memory: memoryview) -> bool:
            if store:
                store.put(key, memory)
            return True

        self._submit(job_metadata, keep)

    def submit_load(self, job_metadata: TransferJob) -> None:
        store = self._store
        self._submit(job_metadata, lambda key, memory: store is not None and store.get(key, memory))

    def _submit(self, job: TransferJob, move: Callable[[OffloadKey, memoryview], bool]) -> None:
        """One task a block; the last of a job to end reports it. `move` returns whether the block was moved."""
        left, failed = len(job.keys), set[OffloadKey]()

        def task(key: OffloadKey, chunk: int) -> None:
            nonlocal left
            moved = self._moved(move, key, chunk)
            with self._idle:
                left -= 1
                if not moved:
                    failed.add(key)
                if not left:
                    self._end(job, failed)

        with self._idle:
            self._under_way += 1
            if not left:
                self._end(job, failed)
        for key, chunk in zip(job.keys, job.chunk_ids, strict=True):
            self._pool.submit(task, key, int(chunk))

    def _moved(self, move: Callable[[OffloadKey, memoryview], bool], key: OffloadKey, chunk: int) -> bool:
        start = chunk * self.block_size_bytes
        try:
            return move(key, self._primary_kv_view.cast("B")[start : start + self.block_size_bytes])
        except Exception:
            self.counts.add(failed=1)
            logger.exception("block %s was not moved", key.hex())
            return False

    def _end(self, job: TransferJob, failed: set[OffloadKey]) -> None:
        sound = tuple(key for key in job.keys if key not in failed)
        self._finished.put((JobResult(job.job_id, success=not failed, successful_keys=sound or None), failed))
        self._under_way -= 1
        self._idle.notify_all()

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """A block that could not be read counts as missing from here on, so that it is computed instead."""
        results = []
        while not self._finished.empty():
            result, failed = self._finished.get_nowait()
            self._lookups.mark_miss(failed)
            results.append(result)
        return results

    def drain_jobs(self) -> None:
        """Part of a reset: waits for what is under way, then turns to the root of the marked weights."""
        with self._idle:
            if not self._idle.wait_for(lambda: not self._under_way, DRAIN_DEADLINE_S):
                raise RuntimeError(f"{self._quota.path}: blocks were not moved within {DRAIN_DEADLINE_S:.0f} s")
        mark = read_mark(self._marks)
        if mark is None or mark.serial == self._seen:
            self._store = None
            return
        self._seen = mark.serial
        self._store = BlockStore(self._quota, root_name(self._engine, mark.digest), self.counts)
        self._janitor.now()

    def _tidy(self) -> None:
        if store := self._store:
            self.counts.add(roots_removed=tidy(self._quota, store.root))

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookups.flush()

    def shutdown(self) -> None:
        """Before the pool's memory goes."""
        self._lookups.shutdown()
        self._pool.shutdown(wait=True)
        self._janitor.stop()
        self._reporter.stop()


class _Lookups(AsyncLookupManager):
    """vLLM's thread for probing."""

    def __init__(self, tier: DiskTier) -> None:
        self._tier = tier
        super().__init__(tier_type=tier.tier_type)

    def batch_lookup(self, keys: list[OffloadKey], req_context: ReqContext) -> Iterable[bool]:
        return [self._tier.there(key) for key in keys]


def _engine_parts(config: Any, settings: str, block_bytes: int) -> dict[str, Any]:
    """What decides a block's bytes beside tokens and weights, as plain data. `config`: vLLM's OffloadingConfig."""
    parallel = asdict(config.parallel)
    return {
        "vllm": vllm.__version__,
        "settings": settings,
        "model": json.loads((Path(config.model.name) / "config.json").read_text(encoding="utf-8")),
        "dtype": config.model.dtype,
        "block_bytes": block_bytes,
        "cache": asdict(config.cache),
        "layout": [config.kv_cache_layout, config.replicated_layout, config.canonical_layout],
        "groups": [[group.tokens_per_block, list(group.layer_names)] for group in config.groups],
        "parallel": {name: parallel[name] for name in ("world_size", "tp_size", "pp_size", "pcp_size", "dcp_size")},
    }
