"""Blocks on a disk with a quota: hits, misses, what is damaged, what has to go."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.kv_tier.block_file import file_size
from serve.kv_tier.block_store import COUNTS, BlockStore, Counts
from serve.kv_tier.janitor import tidy
from serve.kv_tier.naming import BLOCK_SUFFIX, PART_SUFFIX, block_file
from serve.kv_tier.quota import Quota, Stored, stored_files, victims

SIZE = 100
FILE = file_size(SIZE)


def store(path, blocks, root="e/w", counts=None):
    return BlockStore(Quota(path, blocks * FILE), root, counts or Counts(COUNTS))


def block(number):
    return memoryview(bytes([number % 256]) * SIZE)


def key(number):
    return number.to_bytes(36, "big")


def got(blocks, number):
    target = bytearray(SIZE)
    return bytes(target) if blocks.get(key(number), memoryview(target)) else None


def counted(blocks):
    return {name: count for name, count in blocks._counts.all().items() if count}


def held(path):
    return sum(file.size for file in stored_files(path))


def test_a_block_that_was_put_is_there_for_every_store_of_the_root(tmp_path):
    one, other = store(tmp_path, 3), store(tmp_path, 3)
    assert not one.has(key(1)) and got(one, 1) is None
    assert one.put(key(1), block(1)) and one.put(key(1), block(1))
    assert other.has(key(1)) and got(other, 1) == bytes(block(1))
    assert counted(one) == {"misses": 2, "stored": 1, "bytes_written": FILE}
    assert counted(other) == {"hits": 1, "bytes_read": FILE}
    assert got(store(tmp_path, 3, root="e/v"), 1) is None
    assert [file.path.suffix for file in stored_files(tmp_path)] == [BLOCK_SUFFIX]
    assert store(tmp_path / "new", 3)._quota.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["cut", "changed", "moved", "empty"])
def test_a_damaged_file_is_a_miss_counted_and_gone(tmp_path, damage):
    blocks = store(tmp_path, 3)
    blocks.put(key(1), block(1))
    path = block_file(tmp_path / "e/w", key(1))
    whole = path.read_bytes()
    if damage == "moved":
        blocks.put(key(2), block(2))
        block_file(tmp_path / "e/w", key(2)).replace(path)
    bad = {"cut": whole[:-1], "changed": whole[:-1] + b"?", "moved": path.read_bytes(), "empty": b""}
    path.write_bytes(bad[damage])
    used = blocks._quota.used()
    assert got(blocks, 1) is None and not path.exists()
    assert blocks._counts.all()["corrupt"] == 1 and blocks._counts.all()["hits"] == 0
    assert blocks._quota.used() < used or damage == "empty"
    assert blocks.put(key(1), block(1)) and got(blocks, 1) == bytes(block(1))


def test_the_least_recently_used_goes_first(tmp_path):
    blocks = store(tmp_path, 10)
    for number in range(10):
        blocks.put(key(number), block(number))
        os.utime(block_file(tmp_path / "e/w", key(number)), (number, number))
    assert got(blocks, 0)  # used now
    assert blocks.put(key(10), block(10))
    assert [number for number in range(11) if blocks.has(key(number))] == [0, 3, 4, 5, 6, 7, 8, 9, 10]
    assert counted(blocks)["evicted"] == 2 and held(tmp_path) == 9 * FILE == blocks._quota.used()


def test_a_block_above_the_whole_quota_is_refused(tmp_path):
    blocks = BlockStore(Quota(tmp_path, FILE - 1), "e/w", Counts(COUNTS))
    assert not blocks.put(key(1), block(1))
    assert counted(blocks) == {"refused": 1} and held(tmp_path) == 0


def test_a_disk_that_fails_is_counted_and_leaves_nothing(tmp_path, monkeypatch):
    blocks = store(tmp_path, 3)

    def full(*anything):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(BlockStore, "_write", full)
        assert not blocks.put(key(1), block(1))
    assert counted(blocks) == {"failed": 1} and held(tmp_path) == 0 == blocks._quota.used()
    (tmp_path / "e").write_text("a file where a folder belongs")
    assert not blocks.put(key(1), block(1)) and held(tmp_path) == 0 == blocks._quota.used()


@given(
    sizes=st.lists(st.integers(1, 50), max_size=20),
    excess=st.integers(-10, 600),
    parts=st.sets(st.integers(0, 19)),
)
def test_victims_are_the_oldest_and_no_more_than_needed(tmp_path_factory, sizes, excess, parts):
    from pathlib import Path

    files = [
        Stored(Path(f"{number}{PART_SUFFIX if number in parts else BLOCK_SUFFIX}"), size, number)
        for number, size in enumerate(sizes)
    ]
    chosen = victims(list(reversed(files)), excess)
    blocks = [file for file in files if file.path.suffix == BLOCK_SUFFIX]
    assert chosen == blocks[: len(chosen)]
    freed = sum(file.size for file in chosen)
    assert freed >= excess or chosen == blocks
    assert not chosen or freed - chosen[-1].size < excess


def test_a_lost_or_wrong_note_of_the_bytes_is_put_right(tmp_path):
    blocks = store(tmp_path, 10)
    for number in range(5):
        blocks.put(key(number), block(number))
    note = tmp_path / "used"
    assert int(note.read_text()) == 5 * FILE
    note.unlink()
    assert blocks._quota.used() == 5 * FILE
    note.write_text("")
    assert blocks._quota.used() == 5 * FILE
    note.write_text(str(10 * FILE))  # too much, as after a crash: an eviction counts first
    assert blocks.put(key(7), block(7)) and counted(blocks).get("evicted", 0) == 0
    assert int(note.read_text()) == 6 * FILE


def exactly_held(path):
    """Bytes of all files, one that is renamed meanwhile counted once."""
    sizes = {}
    for file in path.rglob("*.*"):
        try:
            facts = file.stat()
        except FileNotFoundError:
            continue
        if file.suffix in (PART_SUFFIX, BLOCK_SUFFIX):
            sizes[facts.st_ino] = facts.st_size
    return sum(sizes.values())


WRITER = """
import sys
from pathlib import Path
from tests.serve.kv_tier.test_kv_block_store import block, counted, key, store
blocks = store(Path(sys.argv[1]), 20, root=sys.argv[2])
for number in range(300):
    blocks.put(key(number), block(number))
print(counted(blocks)["stored"])
"""


def test_the_quota_holds_under_load_from_threads_and_processes(tmp_path):
    blocks = store(tmp_path, 20)
    others = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, root], stdout=subprocess.PIPE, text=True)
        for root in ("e/w", "e/v")
    ]
    over, most, stop = [], [], threading.Event()

    def watch():
        while not stop.is_set():
            with blocks._quota._locked():  # no file comes or goes while they are counted
                most.append(exactly_held(tmp_path))
            over.append(most[-1] > 20 * FILE)

    def write(first):
        for number in range(first, first + 300):
            assert blocks.put(key(number), block(number))

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 150, 1000)]
    watcher = threading.Thread(target=watch)
    for thread in (watcher, *threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    for other in others:
        assert int(other.communicate(timeout=60)[0]) > 100
    stop.set()
    watcher.join(10)
    assert len(over) > 10 and not any(over) and max(most) > 10 * FILE
    assert held(tmp_path) <= blocks._quota.used() <= 20 * FILE
    assert not [file for file in stored_files(tmp_path) if file.path.suffix == PART_SUFFIX]
    assert all(got(blocks, number) in (None, bytes(block(number))) for number in range(1300))
    assert counted(blocks).get("corrupt", 0) == 0


def test_a_lock_that_is_never_given_up_is_waited_for_with_a_deadline(tmp_path, monkeypatch):
    import fcntl

    from serve.kv_tier import quota

    monkeypatch.setattr(quota, "LOCK_DEADLINE_S", 0.05)
    blocks = store(tmp_path, 3)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = time.monotonic()
        assert not blocks.put(key(1), block(1)) and time.monotonic() - start < 5
    assert counted(blocks)["failed"] == 1
    assert blocks.put(key(1), block(1))


def test_only_known_counts_grow():
    counts = Counts(("a", "b"))
    counts.add(a=2)
    counts.add(a=1, b=0)
    assert counts.all() == {"a": 3, "b": 0}
    with pytest.raises(KeyError):
        counts.add(c=1)


@pytest.mark.parametrize("gone", ["", "parts", "e", "lock", "used"])
def test_what_is_deleted_while_in_use_is_made_again_and_counted(tmp_path, gone):
    path = tmp_path / "disk"
    blocks, other = store(path, 3), store(path, 3)
    assert blocks.put(key(1), block(1)) and other.put(key(2), block(2))
    victim = path / gone
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    assert blocks._quota.used() == (2 * FILE if gone != "" else 0)
    tidy(other._quota, "e/w")
    assert blocks.put(key(3), block(3)) and other.put(key(4), block(4)) and got(other, 3) == bytes(block(3))
    assert blocks._quota.used() == held(path) > 0
    assert "failed" not in counted(blocks) | counted(other)
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_root_deleted_between_room_and_write_is_one_failed_block(tmp_path, monkeypatch):
    path = tmp_path / "disk"
    blocks, write = store(path, 3), BlockStore._write

    def deleted_first(self, *rest):
        shutil.rmtree(path)
        write(self, *rest)

    blocks.put(key(1), block(1))
    with monkeypatch.context() as broken:
        broken.setattr(BlockStore, "_write", deleted_first)
        assert not blocks.put(key(2), block(2))
    assert blocks._quota.used() == held(path) == 0
    assert all(blocks.put(key(number), block(number)) for number in (2, 3, 4))
    assert blocks._quota.used() == held(path) == 3 * FILE and counted(blocks)["failed"] == 1


def test_room_for_a_file_that_could_not_be_made_is_given_back(tmp_path, monkeypatch):
    blocks = store(tmp_path, 3)
    blocks.put(key(1), block(1))

    def full(*anything):
        raise OSError(28, "No space left on device")

    for _ in range(5):
        with monkeypatch.context() as broken:
            broken.setattr("serve.kv_tier.quota._make", full)
            assert not blocks.put(key(2), block(2))
    assert int((tmp_path / "used").read_text()) == FILE == held(tmp_path) and counted(blocks)["failed"] == 5
    with pytest.raises(OSError, match="argument"):
        blocks._quota.take(-1)  # made, but not of its length
    assert int((tmp_path / "used").read_text()) == FILE and list((tmp_path / "parts").iterdir()) == []


def test_a_path_deleted_under_the_lock_leaves_no_note(tmp_path):
    path = tmp_path / "disk"
    blocks = store(path, 3)
    with blocks._quota._locked():
        shutil.rmtree(path)
        assert store(path, 3).put(key(1), block(1))  # another engine, which has the new lock
        blocks._quota._write(0)  # less than there is
    assert blocks._quota.used() == FILE == held(path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_a_miss(tmp_path, make):
    blocks = store(tmp_path, 3)
    path = block_file(tmp_path / "e/w", key(1))
    path.parent.mkdir(parents=True)
    make(path)
    start = time.monotonic()
    assert not blocks.has(key(1)) and got(blocks, 1) is None and time.monotonic() - start < 5
    assert counted(blocks) == {"misses": 2} and path.exists()
    kept = blocks.put(key(1), block(1))  # in the place of a pipe, not of a folder
    assert kept == (make is os.mkfifo) == (got(blocks, 1) == bytes(block(1)))
    assert blocks._quota.used() == held(tmp_path) == kept * FILE


@pytest.mark.parametrize("odd", ["-5", "folder", "pipe", "many\n", "9" * 5000])
def test_a_note_that_is_no_number_of_bytes_is_not_believed(tmp_path, odd):
    blocks = store(tmp_path, 3)
    assert blocks.put(key(1), block(1))
    note = tmp_path / "used"
    note.unlink()
    {"folder": note.mkdir, "pipe": lambda: os.mkfifo(note)}.get(odd, lambda: note.write_text(odd))()
    assert blocks._quota.used() == FILE
    assert blocks.put(key(2), block(2)) and int(note.read_text()) == 2 * FILE
    assert "failed" not in counted(blocks)
