"""The disk's quota over all engines that share a path: room is taken before a byte is written.

`<path>/used` holds the bytes taken, changed under an exclusive lock on `<path>/lock`. It never says less than the files
hold: room is noted before its file appears, at full length. It may say more after a crash; counting the files, which
comes before any eviction, puts it right. Blocks are written in `<path>/parts` and renamed from there; parts are counted
first, so that a rename meanwhile can be counted twice but not missed. The whole path may be deleted at any time: it is
made again by the next that needs it, and counted anew.
"""

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from serve.kv_tier.block_file import open_regular
from serve.kv_tier.naming import BLOCK_SUFFIX, PART_SUFFIX

PARTS = "parts"
LOW_WATER = 0.9  # an eviction goes down to this share, so that the next one is some way off
LOCK_DEADLINE_S = 10.0


@dataclass(frozen=True)
class Stored:
    """One file: its bytes and its last use (ns since the epoch)."""

    path: Path
    size: int
    used_ns: int


class Quota:
    """At most `max_bytes` of blocks under `path`, whoever writes them; the least recently used go first."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        self.make_folders()

    def make_folders(self) -> None:
        """Those that are not there, for their owner alone. OSError where they cannot be made."""
        for folder in (self.path, self.path / PARTS):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def take(self, size: int) -> tuple[Path | None, int]:
        """A new file of `size` bytes to write into, None when there is no room even after evicting; and how many
        blocks were evicted.

        TimeoutError when another engine holds the lock for too long; OSError where the disk fails.
        """
        part, evicted = self.path / PARTS / (uuid.uuid4().hex + PART_SUFFIX), 0
        with self._locked():
            used = self._read()
            if used + size > self.max_bytes:
                used, evicted = self._evict(size)
            if used + size > self.max_bytes:
                self._write(used)
                return None, evicted
            self._write(used + size)
            try:
                _make(part, size)
            except OSError:
                self._write(used)
                raise
        return part, evicted

    def give_back(self, file: Path) -> None:
        """Removes a file and frees its room; where it is gone already, what is left is counted."""
        with self._locked():
            try:
                size = file.stat().st_size
                file.unlink()
            except FileNotFoundError:
                self._write(self._count())
                return
            self._write(max(0, self._read() - size))

    def recount(self) -> int:
        """Counts the files anew; bytes."""
        with self._locked():
            used = self._count()
            self._write(used)
        return used

    def used(self) -> int:
        """Bytes taken, as noted."""
        return self._read()

    def _evict(self, needed: int) -> tuple[int, int]:
        files = list(stored_files(self.path))
        used, evicted = sum(file.size for file in files), 0
        for file in victims(files, used + needed - int(self.max_bytes * LOW_WATER)):
            file.path.unlink(missing_ok=True)
            used -= file.size
            evicted += 1
        return used, evicted

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._lock()
        try:
            yield
        finally:
            if not _is_at(lock, self.path / "lock"):  # deleted meanwhile: what was noted may be of files that are gone
                with suppress(OSError):
                    (self.path / "used").unlink(missing_ok=True)
            os.close(lock)  # also unlocks

    def _lock(self) -> int:
        """The handle of the file at `<path>/lock`, locked; not of one that was deleted while it was waited for."""
        deadline = time.monotonic() + LOCK_DEADLINE_S
        while True:
            self.make_folders()
            lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                _wait_for(lock, self.path, deadline)
            except BaseException:
                os.close(lock)
                raise
            if _is_at(lock, self.path / "lock"):
                return lock
            os.close(lock)

    def _read(self) -> int:
        try:
            with open_regular(self.path / "used") as file:
                used = int(file.read())
        except (FileNotFoundError, ValueError):  # not yet, no file, or no number
            return self._count()
        return used if used >= 0 else self._count()

    def _count(self) -> int:
        return sum(file.size for file in stored_files(self.path))

    def _write(self, used: int) -> None:
        note, fresh = self.path / "used", self.path / "used.new"
        for place in (note, fresh):
            if place.exists() and not place.is_file():  # nothing of ours: kept, but elsewhere
                place.rename(place.with_name(f"{place.name}.{uuid.uuid4().hex}"))
        fresh.write_text(str(used))
        fresh.replace(note)


def _make(part: Path, size: int) -> None:
    """A new file of full length, or none."""
    with part.open("xb") as file:
        try:
            file.truncate(size)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _wait_for(handle: int, path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another engine held {path}/lock for {LOCK_DEADLINE_S:.0f} s") from None
            time.sleep(0.001)


def victims(files: list[Stored], excess: int) -> list[Stored]:
    """The least recently used blocks that hold at least `excess` bytes together, or all; none for 0 and less. Files
    that are being written are no victims."""
    chosen: list[Stored] = []
    for file in sorted(files, key=lambda file: (file.used_ns, file.path)):
        if excess <= 0:
            break
        if file.path.suffix == BLOCK_SUFFIX:
            chosen.append(file)
            excess -= file.size
    return chosen


def stored_files(folder: Path) -> Iterator[Stored]:
    """All files of blocks below `folder`, parts first; what vanishes meanwhile is left out."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name != PARTS)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from stored_files(Path(entry.path))
            elif entry.name.endswith((BLOCK_SUFFIX, PART_SUFFIX)):
                facts = entry.stat(follow_symlinks=False)
                yield Stored(Path(entry.path), facts.st_size, facts.st_mtime_ns)
        except FileNotFoundError:
            continue
