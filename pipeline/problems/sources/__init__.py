"""One reader a kind of source: `read(source, seed) -> rows`. Their libraries are imported when first used."""

from collections.abc import Callable, Sequence

from pipeline.config import Source
from pipeline.problems.rows import Row
from pipeline.problems.sources import generated, hub, jsonl, parquet, reasoning_gym

READERS: dict[str, Callable[[Source, int], list[Row]]] = {
    "tiny": generated.read,
    "reasoning_gym": reasoning_gym.read,
    "parquet": parquet.read,
    "jsonl": jsonl.read,
    "hub": hub.read,
}
CHECKS: dict[str, Callable[[Source], None]] = {
    "tiny": generated.check,
    "reasoning_gym": reasoning_gym.check,
    "hub": hub.check,
}  # of what is generated or far away, without making or fetching it; files are read
RAW: dict[str, Callable[[Source], Sequence[dict]]] = {
    "parquet": parquet.raw_rows,
    "jsonl": jsonl.raw_rows,
    "hub": hub.raw_rows,
}  # tables as they are, for benchmarks whose problems are more than a prompt and an answer
