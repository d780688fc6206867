"""How much KV cache a request takes and how many fit: vLLM's own accounting, before anything is loaded.

One pool of blocks serves all layers. Layers with the same cache form a group; a block holds one page of every layer of
a group, and a request takes blocks for each group (vllm/v1/core/kv_cache_utils.py, vllm/v1/kv_cache_interface.py of
0.32). The pool's first block is never given out. Counted for unspeculative decoding without pipeline or context
parallelism.
"""

from dataclasses import dataclass

from pipeline.engine.kv_layout import KvLayout

MAX_CONTEXT = 1 << 30  # tokens; longer than anything that is served


@dataclass(frozen=True)
class KvPlan:
    """Sizes on one tensor-parallel rank. `blocks` and what follows from it are None without a budget.

    `concurrency` is vLLM's "maximum concurrency" (it counts the block that is never given out), `capacity_tokens` its
    "KV cache size".
    """

    bytes_per_token: int
    bytes_per_block: int
    blocks_per_request: int
    needed_bytes: int
    blocks: int | None = None
    concurrency: float | None = None
    capacity_tokens: int | None = None
    longest: int | None = None

    @property
    def fits(self) -> bool | None:
        """Whether one request of the context length fits; None without a budget."""
        return None if self.blocks is None else self.blocks - 1 >= self.blocks_per_request


@dataclass(frozen=True)
class Pool:
    """How an engine keeps its cache. `step_tokens` is its budget of one step (blocks outside a window are freed after a
    step); None: not known, so windowed layers are counted as if they kept the whole context."""

    layout: KvLayout
    block_size: int
    dtype: str
    tensor_parallel: int = 1
    step_tokens: int | None = None

    @property
    def groups(self) -> tuple[int, int, int]:
        """Groups of full layers, groups of windowed layers, and layers of the widest group."""
        full, windowed = self.layout.full, self.layout.windowed
        if not full or not windowed:
            return int(full > 0), int(windowed > 0), full + windowed
        few, many = sorted((full, windowed))
        size = many if many < few * 1.5 else few
        return -(-full // size), -(-windowed // size), size

    def blocks_per_request(self, context: int) -> int:
        """Blocks that one request of `context` tokens takes at most."""
        full, windowed, _ = self.groups
        held = context
        if self.layout.window is not None and self.step_tokens is not None:
            held = min(self.layout.window - 1 + self.step_tokens, context)
        # A window need not begin where a block does: one more.
        return full * -(-context // self.block_size) + windowed * (-(-held // self.block_size) + 1)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block of the pool."""
        return self.groups[2] * self.layout.page_bytes(self.block_size, self.dtype, self.tensor_parallel)

    def longest(self, blocks: int) -> int:
        """The longest request that fits in a pool of `blocks`, in tokens; 0 when none does, MAX_CONTEXT when all do."""
        low, high = 0, max(blocks, 0) * self.block_size if self.layout.full else MAX_CONTEXT
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks_per_request(middle) <= blocks - 1 else (low, middle - 1)
        return low


def kv_plan(pool: Pool, context: int, budget_bytes: int | None = None) -> KvPlan:
    """What requests of `context` tokens take, and with `budget_bytes` of cache on a rank, how many fit."""
    layers = pool.layout.full + pool.layout.windowed
    page = pool.layout.page_bytes(1, pool.dtype, pool.tensor_parallel)
    per_block, per_request = pool.bytes_per_block, pool.blocks_per_request(context)
    needed = (per_request + 1) * per_block
    if budget_bytes is None:
        return KvPlan(layers * page, per_block, per_request, needed)
    blocks = max(budget_bytes, 0) // per_block
    concurrency = blocks / per_request
    return KvPlan(
        layers * page,
        per_block,
        per_request,
        needed,
        blocks,
        concurrency,
        int(concurrency * context),
        pool.longest(blocks),
    )
