"""Real engines with a shared disk: what one computed another serves, within the quota, and never for other weights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from serve.kv_tier.block_file import file_size
from serve.kv_tier.naming import BLOCK_SUFFIX
from serve.kv_tier.quota import stored_files
from tests.serve.kv_tier.live_tiers import (
    BLOCK_BYTES,
    BLOCK_TOKENS,
    DISK_BLOCKS,
    PROMPTS,
    WHOLE_BLOCKS,
    TierEngine,
    prompt,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "infra/models/tiny"
WHOLE = [200 // BLOCK_TOKENS * BLOCK_TOKENS] * len(PROMPTS)
NONE = [0] * len(PROMPTS)


def snapshots(folder):
    """The shipped weights as version 1, and others of the same shapes as version 2."""
    import torch

    from pipeline.weights import read_tensors, write_snapshot

    torch.manual_seed(0)
    old = dict(read_tensors(SHIPPED / "model.safetensors"))
    new = {name: tensor + 0.05 * torch.randn(tensor.shape) for name, tensor in old.items()}
    facts = {"config_digest": "c", "serving_dtype": "float32", "model_dir": SHIPPED}
    for version, state in ((1, old), (2, new)):
        write_snapshot(folder / str(version), state, version=version, step=version, parent=version - 1, **facts)
    return folder / "1", folder / "2"


def another_process(model, disk):
    command = [sys.executable, "-m", "tests.serve.kv_tier.live_tiers", str(model), str(disk)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


class Shared:
    """`first`: what a process with tiers told; `fresh`: what one without tiers answered on the other weights."""

    def __init__(self, folder):
        self.old, self.new = snapshots(folder)
        self.disk = folder / "disk"
        others = [another_process(self.old, self.disk), another_process(self.new, "-")]
        told = [other.communicate(timeout=120)[0] for other in others]
        self.first, self.fresh = (json.loads(text.splitlines()[-1]) for text in told)
        self.engine = TierEngine(self.old, self.disk)
        self.engine.turn_to(digest(self.old))


def digest(folder):
    return json.loads((folder / "manifest.json").read_text())["digest"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    shared = Shared(tmp_path_factory.mktemp("tiers"))
    yield shared
    shared.engine.close()


def test_a_cold_engine_serves_what_another_process_computed(shared):
    assert shared.first["cached"] == NONE
    assert shared.first["counters"]["disk"]["stored"] == WHOLE_BLOCKS == shared.first["counters"]["dram"]["stored"]
    replies, cached = shared.engine.ask(PROMPTS)
    assert replies == shared.first["replies"] and cached == WHOLE
    told = shared.engine.counters()
    assert told["disk"]["hits"] == WHOLE_BLOCKS and told["disk"]["corrupt"] == 0
    assert told["disk"]["bytes_read"] == WHOLE_BLOCKS * file_size(BLOCK_BYTES)
    assert told["disk"]["bytes"] == shared.engine.held() == WHOLE_BLOCKS * file_size(BLOCK_BYTES)
    assert told["dram"]["bytes"] == WHOLE_BLOCKS * BLOCK_BYTES
    assert len({*map(tuple, replies)}) > 1  # the model tells the prompts apart


def test_memory_serves_before_the_disk(shared):
    before = shared.engine.counters()
    shared.engine.forget()
    assert shared.engine.ask(PROMPTS) == (shared.first["replies"], WHOLE)
    after = shared.engine.counters()
    assert after["dram"]["hits"] - before["dram"]["hits"] == WHOLE_BLOCKS
    assert after["disk"]["hits"] == before["disk"]["hits"]


def test_damaged_files_are_computed_again(shared):
    files = sorted(file.path for file in stored_files(shared.disk) if file.path.suffix == BLOCK_SUFFIX)
    for number, path in enumerate(files):
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] if number % 2 else whole[:5000] + bytes(64) + whole[5064:])
    before = shared.engine.counters()["disk"]
    shared.engine.turn_to(digest(shared.old))
    replies, cached = shared.engine.ask(PROMPTS)
    assert replies == shared.first["replies"] and cached == NONE
    after = shared.engine.counters()["disk"]
    assert after["corrupt"] - before["corrupt"] >= len(PROMPTS) and after["hits"] == before["hits"]
    shared.engine.turn_to(digest(shared.old))
    shared.engine.ask(PROMPTS)
    assert shared.engine.ask(PROMPTS)[0] == shared.first["replies"]


def test_the_quota_holds_under_load(shared):
    most = 0
    for first in range(100, 140, 8):
        shared.engine.ask([prompt(seed) for seed in range(first, first + 8)], tokens=2)
        most = max(most, shared.engine.held())
    told = shared.engine.counters()
    assert 0.8 * DISK_BLOCKS * file_size(BLOCK_BYTES) < most <= DISK_BLOCKS * file_size(BLOCK_BYTES)
    assert told["disk"]["evicted"] > 100 and told["disk"]["failed"] == 0
    assert told["dram"]["evicted"] > 100 and told["dram"]["bytes"] <= 0.006 * (1 << 30)
    assert shared.engine.ask(PROMPTS)[0] == shared.first["replies"]


def test_after_a_swap_nothing_of_the_old_weights_is_used(shared):
    engine = shared.engine
    engine.ask(PROMPTS)  # everywhere now: in the engine, in memory, on the disk
    engine.swap(shared.new)
    replies, cached = engine.ask(PROMPTS)
    assert replies == shared.fresh["replies"] != shared.first["replies"] and cached == NONE
    engine.forget()
    assert engine.ask(PROMPTS) == (shared.fresh["replies"], WHOLE)
    engine.turn_to(digest(shared.new))
    assert engine.ask(PROMPTS) == (shared.fresh["replies"], WHOLE)
    assert engine.counters()["disk"]["root"].endswith(f"/{digest(shared.new)[:32]}")
    engine.swap(shared.old)
    assert engine.ask(PROMPTS)[0] == shared.first["replies"]


def test_a_swap_while_requests_run_leaves_nothing_of_the_old_weights(shared):
    engine = shared.engine
    for steps in (1, 2, 5):  # blocks are on their way to memory, to the disk, and at rest
        engine.swap(shared.old)
        engine.begin([*PROMPTS, *(prompt(steps * 1000 + seed) for seed in range(4))], tokens=20)
        for _ in range(steps):
            engine.engine.step()
        engine.swap(shared.new)
        assert engine.ask(PROMPTS)[0] == shared.fresh["replies"]
        engine.forget()
        assert engine.ask(PROMPTS) == (shared.fresh["replies"], WHOLE)
        engine.turn_to(digest(shared.new))
        assert engine.ask(PROMPTS)[0] == shared.fresh["replies"]
    engine.swap(shared.old)


def test_without_a_mark_the_disk_is_left_alone(shared):
    engine = shared.engine
    engine.turn_to(digest(shared.old))
    engine.ask(PROMPTS)
    before = engine.counters()["disk"]
    assert engine.engine.reset_prefix_cache(reset_connector=True)
    assert engine.ask(PROMPTS) == (shared.first["replies"], NONE)
    after = engine.counters()["disk"]
    assert after["root"] is None
    assert {**after, "root": 0} == {**before, "root": 0}
