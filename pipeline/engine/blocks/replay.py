"""Feeds vLLM's own block manager with a stream of requests, one block size at a time, without a model.

Each step is what vLLM's scheduler does with the manager (0.32, first come, first served): those that run take a slot
for their next token, and where no block is left the last of them is preempted; then those that wait are admitted while
their whole prompt fits. All requests are there from the start, so memory is as full as it can get. Counts depend on the
requests alone, seconds on the machine.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.config.errors import UserError
from pipeline.engine.blocks.trace import TracedRequest

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.request import Request


@dataclass(frozen=True)
class Setting:
    """The engine around the blocks: sequences at once, tokens of a step, whether prompts are computed in chunks,
    whether prefixes are kept, and vLLM's name for their hash."""

    max_running: int
    step_tokens: int
    chunked: bool
    prefix_cache: bool = True
    prefix_hash: str = "sha256"


@dataclass
class Replayed:
    """What one block size did. Tokens unless said otherwise.

    `hit_tokens` of prompts were found in the prefix cache at first admission, `computed_tokens` were computed (those
    again after a preemption, `recomputed_tokens`, among them). `blocked` counts admissions that found too few blocks.
    `tail_tokens` is the mean of a running request's slots without a token, `held_tokens` that of a step's blocks in
    use. `entries` is the mean length of block tables when requests end, `longest_table` the greatest, `hashes` the
    blocks that were hashed, `seconds` inside the manager and the hashing.
    """

    block_size: int
    blocks: int
    steps: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    blocked: int = 0
    tail_tokens: float = 0.0
    held_tokens: float = 0.0
    peak_tokens: int = 0
    entries: float = 0.0
    longest_table: int = 0
    hashes: int = 0
    seconds: float = 0.0


def replay(requests: Sequence[TracedRequest], block_size: int, blocks: int, setting: Setting) -> Replayed:
    """All `requests` through a pool of `blocks` (vLLM never gives out the first). UserError for one that cannot fit."""
    for number, request in enumerate(requests, start=1):
        needed = -(-(request.tokens - 1) // block_size)  # the last token is never fed back
        if needed > blocks - 1:
            raise UserError(
                f"request {number} of the trace has {request.tokens} tokens and needs {needed} blocks of {block_size}; "
                f"the cache has {max(blocks - 1, 0)}: raise engine.kv_cache_bytes, or leave the request out"
            )
        if not setting.chunked and request.tokens - 1 > setting.step_tokens:
            raise UserError(
                f"request {number} of the trace has {request.tokens} tokens, more than a step's {setting.step_tokens}, "
                "and prompts are not computed in chunks here: it could never start again after a preemption"
            )
    return _Run(requests, block_size, blocks, setting).run()


@dataclass
class _Run:
    traced: Sequence[TracedRequest]
    size: int
    blocks: int
    setting: Setting
    running: list["Request"] = field(default_factory=list)
    tails: list[int] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)  # tokens that were computed before a preemption
    held: int = 0

    def run(self) -> Replayed:
        self.row = Replayed(self.size, self.blocks, prompt_tokens=sum(len(r.prompt) for r in self.traced))
        self.manager = _manager(self.size, self.blocks, max(r.tokens for r in self.traced), self.setting.prefix_cache)
        make = _request_maker(self.size, self.setting)
        self.waiting = deque(self._timed(make, str(i), request) for i, request in enumerate(self.traced))
        while self.waiting or self.running:
            self._step()
        row = self.row
        row.tail_tokens = sum(self.tails) / len(self.tails)
        row.held_tokens = self.held / row.steps
        row.entries, row.longest_table = sum(self.tables) / len(self.tables), max(self.tables)
        return row

    def _timed(self, call: Callable[..., Any], *args: Any, **keys: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*args, **keys)
        finally:
            self.row.seconds += time.perf_counter() - start

    def _step(self) -> None:
        self.row.steps += 1
        budget, scheduled, before = self.setting.step_tokens, {}, self.row.preemptions
        index = 0
        while index < len(self.running) and budget:
            request = self.running[index]
            count = min(request.num_tokens - request.num_computed_tokens, budget)
            if self._slots_by_preemption(request, count):
                scheduled[request.request_id] = count
                budget -= count
            index += 1
        if self.row.preemptions == before:
            self._admit(budget, scheduled)
        self._measure(scheduled)
        for request in [r for r in self.running if r.request_id in scheduled]:
            self._advance(request, scheduled[request.request_id])

    def _slots_by_preemption(self, request: "Request", count: int) -> bool:
        """Slots for a running request; the last of those that run gives up its blocks until there are enough. False
        when that is the request itself."""
        while self._timed(self.manager.allocate_slots, request, count) is None:
            last = self.running.pop()
            self._timed(self.manager.free, last)
            self.lost[last.request_id] = last.num_computed_tokens
            last.num_computed_tokens, last.num_preemptions = 0, last.num_preemptions + 1
            last.status = type(last.status).PREEMPTED
            self.waiting.appendleft(last)
            self.row.preemptions += 1
            if last is request:
                return False
        return True

    def _admit(self, budget: int, scheduled: dict[str, int]) -> None:
        while self.waiting and budget and len(self.running) < self.setting.max_running:
            request = self.waiting[0]
            cached, hit, _ = self._timed(self.manager.get_computed_blocks, request)
            count = request.num_tokens - hit
            if count > budget and not self.setting.chunked:
                return
            count = min(count, budget)
            keys = {"num_new_computed_tokens": hit, "new_computed_blocks": cached, "full_sequence_must_fit": True}
            if self._timed(self.manager.allocate_slots, request, count, **keys) is None:
                self.row.blocked += 1
                return
            self.waiting.popleft()
            if request.num_preemptions:
                self.row.recomputed_tokens += max(self.lost[request.request_id] - hit, 0)
            else:
                self.row.hit_tokens += hit
            request.num_computed_tokens = hit
            request.status = type(request.status).RUNNING
            self.running.append(request)
            scheduled[request.request_id] = count
            budget -= count

    def _measure(self, scheduled: dict[str, int]) -> None:
        pool = self.manager.block_pool
        used = (self.blocks - 1 - pool.get_num_free_blocks()) * self.size
        self.held += used
        self.row.peak_tokens = max(self.row.peak_tokens, used)
        for request in self.running:
            count = scheduled.get(request.request_id)
            if count is not None:
                table = len(self.manager.get_blocks(request.request_id).blocks[0])
                self.tails.append(table * self.size - request.num_computed_tokens - count)

    def _advance(self, request: "Request", count: int) -> None:
        request.num_computed_tokens += count
        self.row.computed_tokens += count
        if request.num_computed_tokens < request.num_tokens:
            return
        reply = self.traced[int(request.request_id)].output
        self._timed(request.append_output_token_ids, reply[request.num_output_tokens])
        if request.num_output_tokens == len(reply):
            self.tables.append(len(self.manager.get_blocks(request.request_id).blocks[0]))
            self.row.hashes += len(request.block_hashes)
            self.running.remove(request)
            self._timed(self.manager.free, request)


def _manager(size: int, blocks: int, longest: int, caching: bool) -> "KVCacheManager":
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return KVCacheManager(
        config, max_model_len=longest, scheduler_block_size=size, hash_block_size=size, enable_caching=caching
    )


def _request_maker(size: int, setting: Setting) -> Callable[[str, TracedRequest], "Request"]:
    from vllm import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    hash_function = get_hash_fn_by_name(setting.prefix_hash)
    init_none_hash(hash_function)
    hasher = get_request_block_hasher(size, hash_function) if setting.prefix_cache else None

    def make(name: str, traced: TracedRequest) -> Request:
        params = SamplingParams(max_tokens=len(traced.output))
        return Request(name, list(traced.prompt), params, None, cache_salt=traced.salt, block_hasher=hasher)

    return make
