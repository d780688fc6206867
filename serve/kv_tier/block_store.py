"""Blocks as files under one root: put, get, is there. Thread-safe; several processes may share the path."""

import os
import threading
from collections import Counter
from pathlib import Path

from serve.kv_tier.block_file import CorruptBlock, file_size, header, read_into
from serve.kv_tier.naming import block_file
from serve.kv_tier.quota import Quota

COUNTS = ("hits", "misses", "stored", "evicted", "corrupt", "refused", "failed", "bytes_read", "bytes_written")


class Counts:
    """Whole numbers by name that only grow."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names, self._counts, self._lock = names, Counter[str](), threading.Lock()

    def add(self, **more: int) -> None:
        """KeyError for a name that is not counted here."""
        if unknown := set(more) - set(self._names):
            raise KeyError(f"not counted: {unknown}")
        with self._lock:
            self._counts.update(more)

    def all(self) -> dict[str, int]:
        """Every name with its count."""
        with self._lock:
            return {name: self._counts[name] for name in self._names}


class BlockStore:
    """`root` (relative to the quota's path) names what may be in the files besides the block's own key."""

    def __init__(self, quota: Quota, root: str, counts: Counts) -> None:
        self.root, self._quota, self._counts = root, quota, counts
        self._folder = quota.path / root

    def has(self, key: bytes) -> bool:
        """Whether there is a file for the block; a missing one is counted as a miss."""
        there = os.path.isfile(block_file(self._folder, key))
        if not there:
            self._counts.add(misses=1)
        return there

    def get(self, key: bytes, target: memoryview) -> bool:
        """Fills `target` with the block. False when it is gone (a miss) or not sound (removed, and counted)."""
        path = block_file(self._folder, key)
        try:
            read_into(path, self.root, key.hex(), target)
            os.utime(path)
        except FileNotFoundError:
            self._counts.add(misses=1)
            return False
        except CorruptBlock:
            self._counts.add(corrupt=1)
            self._remove(path)
            return False
        except OSError:
            self._counts.add(failed=1)
            return False
        self._counts.add(hits=1, bytes_read=file_size(len(target)))
        return True

    def put(self, key: bytes, payload: memoryview) -> bool:
        """Writes the block unless it is there. False where there is no room for it or the disk fails (both counted)."""
        path = block_file(self._folder, key)
        if os.path.isfile(path):
            return True
        size, part = file_size(len(payload)), None
        try:
            part, evicted = self._quota.take(size)
            self._counts.add(evicted=evicted)
            if part is None:
                self._counts.add(refused=1)
                return False
            self._write(part, path, key, payload)
        except OSError:  # TimeoutError is one
            self._counts.add(failed=1)
            if part:
                self._remove(part)
            return False
        self._counts.add(stored=1, bytes_written=size)
        return True

    def _write(self, part: Path, path: Path, key: bytes, payload: memoryview) -> None:
        with part.open("r+b", buffering=0) as file:
            file.write(header(self.root, key.hex(), payload))
            written = 0
            while written < len(payload):
                written += file.write(payload[written:])
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.replace(path)

    def _remove(self, path: Path) -> None:
        try:
            self._quota.give_back(path)
        except OSError:
            self._counts.add(failed=1)
