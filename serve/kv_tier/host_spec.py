"""The tiers where the engine itself computes on CPU: vLLM's tiering manager and pool, and our copying.

vLLM 0.32 refuses offloading on CPU only because its copy kernels are for GPUs. There the cache and the pool are both
host memory, so a copy is a memory copy, done at once. On GPUs vLLM's own `TieringOffloadingSpec` is used instead.
"""

import time
from pathlib import Path
from typing import Any

import torch
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LookupResult,
    OffloadingManager,
    OffloadingWorker,
    TransferResult,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from serve.kv_tier.block_store import Counts
from serve.kv_tier.reporter import Reporter
from serve.kv_tier.weights_mark import marks_dir

_pools: dict[str, SharedOffloadRegion] = {}  # mapped by a worker, by engine
COUNTS = ("hits", "misses", "stored", "evicted", "refused")


class HostTieringSpec(TieringOffloadingSpec):
    """vLLM's tiering for one worker on CPU, each block a chunk of its own."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if self.blocks_per_chunk != 1 or config.parallel.world_size != 1:
            raise ValueError("on CPU a chunk of the KV tiers is one block, and an engine has one worker")

    def get_manager(self) -> OffloadingManager:
        """vLLM's manager, counting. Where the worker of this process has mapped the pool already, the pool's name
        goes: then no way to end leaves the memory behind."""
        if not isinstance(self._manager, CountingManager):
            self._manager = CountingManager(super().get_manager(), self)
            if worker := _pools.pop(self._engine_id, None):
                for region in (worker, self._scheduler_mmap):
                    region._creator = False
                Path(worker.mmap_path).unlink(missing_ok=True)
        return self._manager

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if not self._worker:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            _pools[self._engine_id] = region
            self._worker = HostCopies(kv_caches, region)
        return self._worker


class CountingManager(TieringOffloadingManager):
    """Counts what the host pool did: blocks that came from it, that no tier had, that went into it and out of it."""

    def __init__(self, made: TieringOffloadingManager, spec: HostTieringSpec) -> None:
        super().__init__(made.primary_tier, made.secondary_tiers)
        self.counts, self._block_bytes = Counts(COUNTS), spec.kv_bytes_per_chunk
        self._missed: dict[str, set[bytes]] = {}
        self._reporter = Reporter(marks_dir(spec.extra_config), "dram", self.state)

    def state(self) -> dict[str, Any]:
        """Counters, and the bytes of the pool that are taken."""
        pool = self.primary_tier
        taken = pool._num_allocated_chunks - len(pool._free_list)
        return {**self.counts.all(), "bytes": taken * self._block_bytes}

    def lookup(self, key: Any, req_context: Any, **exclude: Any) -> LookupResult:
        found = super().lookup(key, req_context, **exclude)
        missed = self._missed.get(req_context.req_id)
        if found is LookupResult.MISS and missed is not None and key not in missed:
            missed.add(key)
            self.counts.add(misses=1)
        return found

    def prepare_load(self, keys: Any, req_context: Any) -> Any:
        sources = [self.get_load_source(key, req_context) for key in keys]
        self.counts.add(hits=sources.count(CacheHitSource.HOST))
        return super().prepare_load(keys, req_context)

    def prepare_store(self, keys: Any, req_context: Any) -> Any:
        prepared = super().prepare_store(keys, req_context)
        if prepared is None:
            self.counts.add(refused=len(keys))
        else:
            self.counts.add(stored=len(prepared.keys_to_store), evicted=len(prepared.evicted_keys))
        return prepared

    def on_new_request(self, req_context: Any, **exclude: Any) -> Any:
        self._missed[req_context.req_id] = set()
        return super().on_new_request(req_context, **exclude)

    def on_request_finished(self, req_context: Any, **exclude: Any) -> None:
        self._missed.pop(req_context.req_id, None)
        super().on_request_finished(req_context, **exclude)

    def shutdown(self) -> None:
        self._reporter.stop()
        super().shutdown()


class HostCopies(OffloadingWorker):
    """Copies blocks between the engine's cache and the pool; a copy is done when its submission returns."""

    def __init__(self, caches: CanonicalKVCaches, region: SharedOffloadRegion) -> None:
        self._region = region
        self._groups = [[ref.tensor_idx for ref in refs] for refs in caches.group_data_refs]
        self._cache = [part.tensor.view(torch.int8).view(-1, part.page_size_bytes) for part in caches.tensors]
        self._pool = [region.create_next_worker_view(part.page_size_bytes) for part in caches.tensors]
        self._done: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: CPULoadStoreSpec) -> bool:
        return self._copy(job_id, self._cache, self._pool, src_spec, dst_spec, src_spec.group_sizes)

    def submit_load(self, job_id: int, src_spec: CPULoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        return self._copy(job_id, self._pool, self._cache, src_spec, dst_spec, dst_spec.group_sizes)

    def _copy(self, job_id: int, source: Any, target: Any, src_spec: Any, dst_spec: Any, sizes: Any) -> bool:
        """Blocks come ordered by group; each group has its own tensors."""
        start, first, moved = time.perf_counter(), 0, 0
        for size, tensors in zip(sizes, self._groups, strict=True):
            from_ids = torch.as_tensor(src_spec.block_ids[first : first + size].astype("int64"))
            to_ids = torch.as_tensor(dst_spec.block_ids[first : first + size].astype("int64"))
            for index in tensors:
                target[index][to_ids] = source[index][from_ids]
                moved += size * source[index].shape[1]
            first += size
        self._done.append(TransferResult(job_id, True, moved, time.perf_counter() - start))
        return True

    def get_finished(self) -> list[TransferResult]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is ever under way."""

    def shutdown(self) -> None:
        self._cache, self._pool = [], []
        self._region.cleanup()
