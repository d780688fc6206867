"""What the janitor removes, and what tiers and replica tell each other."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.kv_tier.block_store import COUNTS, BlockStore, Counts
from serve.kv_tier.janitor import PART_S, mark_used, old_roots, tidy
from serve.kv_tier.quota import Quota, stored_files
from serve.kv_tier.replica_side import TierFolder
from serve.kv_tier.reporter import Every, Reporter
from serve.kv_tier.weights_mark import Mark, marks_dir, read_counters, read_mark, write_counters, write_mark

HEX = "ab" * 32


@given(
    marks=st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1000)),
    now=st.floats(0, 2000),
    idle=st.floats(1, 500),
)
def test_old_roots_are_others_that_nobody_marked_for_long(marks, now, idle):
    gone = old_roots(marks, "a", now, idle)
    assert "a" not in gone and gone == sorted(gone)
    assert all((name in gone) == (now - marked > idle) for name, marked in marks.items() if name != "a")


def filled(path, root):
    quota = Quota(path, 1 << 20)
    BlockStore(quota, root, Counts(COUNTS)).put(b"key", memoryview(b"x" * 100))
    mark_used(path / root)
    return quota


def test_a_swap_leaves_one_root_and_other_endpoints_alone(tmp_path):
    quota = filled(tmp_path, "mine/new")
    for root in ("mine/old", "mine/canary", "other/old"):
        filled(tmp_path, root)
    long_ago = time.time() - 1000
    for root in ("mine/new", "mine/old", "other/old"):
        os.utime(tmp_path / root, (long_ago, long_ago))
    assert tidy(quota, "mine/new") == 1
    left = sorted(str(folder.relative_to(tmp_path)) for folder in tmp_path.glob("*/*"))
    assert left == ["mine/canary", "mine/new", "other/old"]
    assert quota.used() == sum(file.size for file in stored_files(tmp_path)) == 3 * (48 + 100)
    assert time.time() - (tmp_path / "mine/new").stat().st_mtime < 100
    assert tidy(quota, "mine/new") == 0


def test_parts_that_nobody_finished_go(tmp_path):
    quota = filled(tmp_path, "e/w")
    old, young = (quota.take(50)[0] for _ in range(2))
    os.utime(old, (time.time() - 2 * PART_S,) * 2)
    tidy(quota, "e/w")
    assert young.exists() and not old.exists() and quota.used() == 148 + 50


def test_two_janitors_at_once_are_no_trouble(tmp_path):
    quota = filled(tmp_path, "e/new")
    for number in range(30):
        filled(tmp_path, f"e/old{number}")
        os.utime(tmp_path / f"e/old{number}", (1, 1))
    removed = []
    threads = [threading.Thread(target=lambda: removed.append(tidy(quota, "e/new"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(removed) == 4 and [folder.name for folder in (tmp_path / "e").iterdir()] == ["new"]
    assert quota.used() == 148


def test_a_mark_is_read_whole_or_not_at_all(tmp_path):
    assert read_mark(tmp_path) is None
    write_mark(tmp_path, HEX)
    first = read_mark(tmp_path)
    assert first.digest == HEX
    write_mark(tmp_path, HEX)
    assert read_mark(tmp_path).serial != first.serial
    for odd in ("", "a", f"a {HEX[:31]}", f"a ../{HEX}", f"a {HEX} b", "a " + "Z" * 64):
        (tmp_path / "weights").write_text(odd)
        assert read_mark(tmp_path) is None
    (tmp_path / "weights").write_text(f"a {HEX}")
    assert read_mark(tmp_path) == Mark("a", HEX)
    (tmp_path / "weights").write_bytes(b"\xff\xfe")
    assert read_mark(tmp_path) is None


def test_tiers_without_a_replica_say_so(tmp_path):
    assert marks_dir({"marks_dir": str(tmp_path)}) == tmp_path
    with pytest.raises(ValueError, match="belong to a replica"):
        marks_dir({"cpu_bytes_to_use": 1})


def test_counters_are_told_by_tier(tmp_path):
    assert read_counters(tmp_path) == {}
    write_counters(tmp_path, "disk", {"hits": 1})
    write_counters(tmp_path, "dram", {"hits": 2})
    assert read_counters(tmp_path) == {"disk": {"hits": 1}, "dram": {"hits": 2}}


def test_a_replica_names_the_folder_only_where_there_are_tiers():
    plain = {"dtype": "float32", "kv_transfer_config": {"kv_connector": "NixlConnector"}}
    assert TierFolder(plain).engine_kwargs == plain and TierFolder({}).counters() == {}
    TierFolder({}).mark(HEX)
    asked = {"kv_transfer_config": {"kv_connector_extra_config": {"cpu_bytes_to_use": 1}}}
    folder = TierFolder(asked)
    extra = folder.engine_kwargs["kv_transfer_config"]["kv_connector_extra_config"]
    assert asked == {"kv_transfer_config": {"kv_connector_extra_config": {"cpu_bytes_to_use": 1}}}
    folder.mark(HEX)
    assert set(extra) == {"cpu_bytes_to_use", "marks_dir"} and folder.counters() == {}


def test_reports_are_written_at_the_end_and_failures_counted(tmp_path):
    state = {"hits": 0}
    reporter = Reporter(tmp_path, "disk", lambda: dict(state))
    state["hits"] = 5
    reporter.stop()
    assert read_counters(tmp_path) == {"disk": {"hits": 5}}

    def fail():
        raise OSError("the disk is gone")

    failing = Every(1000, fail, "failing")
    failing.now()
    failing.stop()
    assert failing.failures >= 1
