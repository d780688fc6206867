"""The disk tier as vLLM's tiering manager drives it, over memory of its own instead of an engine's pool."""

import json
import threading
import time
from types import SimpleNamespace

import pytest

from serve.kv_tier.naming import BLOCK_SUFFIX
from serve.kv_tier.quota import stored_files
from serve.kv_tier.weights_mark import read_counters, write_mark

pytestmark = pytest.mark.slow  # vLLM is imported

SIZE, BLOCKS = 4096, 8
OLD, NEW = "ab" * 32, "cd" * 32


class Driven:
    """A tier over `memory`, where block n is filled with n."""

    def __init__(self, folder, **changed):
        import numpy as np
        from vllm.v1.kv_offload.config import (
            OffloadingCacheConfig,
            OffloadingConfig,
            OffloadingGroupConfig,
            OffloadingModelConfig,
            OffloadingParallelConfig,
        )

        from serve.kv_tier.disk_tier import DiskTier

        self.marks, self.disk = folder / f"marks-{time.monotonic_ns()}", folder / "disk"
        self.marks.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        self.memory = np.zeros((BLOCKS, SIZE), dtype=np.int8)
        self.memory += np.arange(BLOCKS, dtype=np.int8)[:, None]
        parallel = OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True)
        config = OffloadingConfig(
            groups=(OffloadingGroupConfig(32, ("layer.0",), 0),),
            worker_kv_bytes_per_block=SIZE,
            enable_kv_cache_events=False,
            extra_config={"marks_dir": str(self.marks)},
            engine_id="e",
            model=OffloadingModelConfig(str(folder), changed.get("dtype", "float32")),
            cache=OffloadingCacheConfig(32, 1),
            parallel=parallel,
        )
        self.tier = DiskTier(
            root_dir=str(self.disk),
            max_bytes=1 << 20,
            threads=2,
            settings="s",
            offloading_spec=SimpleNamespace(config=config, extra_config=config.extra_config),
            primary_kv_view=memoryview(self.memory),
            tier_type="DiskTier",
        )
        self._jobs = 0

    def turn_to(self, digest):
        write_mark(self.marks, digest)
        self.tier.drain_jobs()

    def job(self, submit, keys, chunks):
        import numpy as np
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.tiering.base import TransferJob

        self._jobs += 1
        submit(TransferJob(self._jobs, keys, np.array(chunks, dtype=np.int32), True, ReqContext("r")))
        return self._jobs

    def done(self, submit, keys, chunks):
        """The result of one job, waited for."""
        number, deadline = self.job(submit, keys, chunks), time.monotonic() + 20
        while True:
            for result in self.tier.get_finished_jobs():
                assert result.job_id == number
                return result
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def store(self, keys, chunks):
        return self.done(self.tier.submit_store, keys, chunks)

    def load(self, keys, chunks):
        return self.done(self.tier.submit_load, keys, chunks)

    def found(self, key):
        from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext

        request, deadline = ReqContext("r"), time.monotonic() + 20
        while (answer := self.tier.lookup(key, request)) is LookupResult.RETRY:
            assert time.monotonic() < deadline
            self.tier.on_schedule_end(ScheduleEndContext((), ()))
            time.sleep(0.001)
        self.tier.on_request_finished(request)
        return answer is LookupResult.HIT


@pytest.fixture
def driven(tmp_path):
    made = []

    def make(**changed):
        made.append(Driven(tmp_path, **changed))
        return made[-1]

    yield make
    for one in made:
        one.tier.shutdown()


def key(number):
    return number.to_bytes(32, "big") + bytes(4)


def files(one):
    return [file.path for file in stored_files(one.disk) if file.path.suffix == BLOCK_SUFFIX]


def test_one_tier_reads_what_another_wrote(driven):
    writer, reader = driven(), driven()
    writer.turn_to(OLD)
    reader.turn_to(OLD)
    assert not reader.found(key(1))
    assert writer.store([key(1), key(2)], [1, 2]).success
    assert reader.found(key(1)) and reader.found(key(2)) and not reader.found(key(3))
    result = reader.load([key(1), key(2)], [5, 6])
    assert result.success and (reader.memory[5] == 1).all() and (reader.memory[6] == 2).all()
    assert (reader.memory[[0, 1, 2, 3, 4, 7], 0] == [0, 1, 2, 3, 4, 7]).all()
    told = reader.tier.state()
    assert (told["hits"], told["misses"], told["stored"]) == (2, 2, 0)


def test_off_until_weights_are_marked_and_after_a_reset_without_a_mark(driven):
    one = driven()
    assert one.store([key(1)], [1]).success and files(one) == [] and not one.found(key(1))
    one.turn_to(OLD)
    one.store([key(1)], [1])
    assert one.found(key(1)) and len(files(one)) == 1
    one.tier.drain_jobs()  # a reset: which weights come next is not known
    assert one.tier.state()["root"] is None and not one.found(key(1))
    assert not one.load([key(1)], [2]).success
    assert one.store([key(2)], [2]).success and len(files(one)) == 1
    (one.marks / "weights").write_text("../.. x")
    one.tier.drain_jobs()
    assert one.tier.state()["root"] is None
    one.turn_to(OLD)
    assert one.found(key(1))


def test_other_weights_and_other_engines_have_other_roots(driven):
    one, other = driven(), driven(dtype="bfloat16")
    one.turn_to(OLD)
    one.store([key(1)], [1])
    other.turn_to(OLD)
    assert not other.found(key(1))
    one.turn_to(NEW)
    assert not one.found(key(1)) and not one.load([key(1)], [3]).success
    one.turn_to(OLD)
    assert one.found(key(1))


def test_of_a_job_only_what_cannot_be_read_fails(driven):
    one = driven()
    one.turn_to(OLD)
    one.store([key(n) for n in range(4)], range(4))
    by_name = {path.name: path for path in files(one)}
    bad, gone = (by_name[key(n).hex() + BLOCK_SUFFIX] for n in (1, 2))
    bad.write_bytes(bad.read_bytes()[:-1] + b"?")
    gone.unlink()
    result = one.load([key(n) for n in range(4)], range(4, 8))
    assert not result.success and set(result.successful_keys) == {key(0), key(3)}
    assert (one.memory[4] == 0).all() and (one.memory[7] == 3).all()
    assert one.tier.state()["corrupt"] == 1 and one.tier.state()["misses"] == 1
    assert one.store([], []).success


def test_what_nobody_foresaw_is_a_failed_block_and_counted(driven, monkeypatch):
    one = driven()
    one.turn_to(OLD)
    monkeypatch.setattr(type(one.tier._store), "get", lambda *anything: 1 / 0)
    assert not one.load([key(1)], [1]).success
    assert one.tier.state()["failed"] == 1


def test_a_reset_waits_for_what_is_under_way_and_keeps_it_in_its_root(driven, monkeypatch):
    from serve.kv_tier import disk_tier

    one, go = driven(), threading.Event()
    one.turn_to(OLD)
    store, put = one.tier._store, type(one.tier._store).put
    monkeypatch.setattr(type(store), "put", lambda *args: go.wait(20) and put(*args))
    one.job(one.tier.submit_store, [key(1)], [1])
    monkeypatch.setattr(disk_tier, "DRAIN_DEADLINE_S", 0.05)
    with pytest.raises(RuntimeError, match="were not moved within"):
        one.turn_to(NEW)
    assert one.tier.state()["root"] == store.root  # nothing has changed
    monkeypatch.setattr(disk_tier, "DRAIN_DEADLINE_S", 20)
    threading.Timer(0.1, go.set).start()
    one.tier.drain_jobs()
    assert [path.parents[1].name for path in files(one)] == [OLD[:32]]
    assert one.tier.state()["root"].endswith(NEW[:32]) and not one.found(key(1))


def test_the_last_counters_are_told_at_the_end(driven):
    one = driven()
    one.turn_to(OLD)
    one.store([key(1)], [1])
    one.tier.shutdown()
    assert read_counters(one.marks)["disk"]["stored"] == 1
