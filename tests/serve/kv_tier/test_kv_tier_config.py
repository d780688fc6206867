"""`kv.tiers` and `kv.transfer`: what vLLM is given for them, and what is refused."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config import RunConfig, UserError, load_config, resolve_paths
from pipeline.engine.options import EngineOptions
from pipeline.engine.vllm_source import class_fields, kv_connectors
from serve.effective import compare, differences
from serve.engine_config import effective_engine
from serve.kv_tier.arguments import CONNECTORS, kv_transfer_config, settings_digest
from serve.kv_tier.checks import tier_refusals, transfer_refusals
from serve.levers import engine_kwargs, engine_levers, lever_sections, refusals

TINY = "infra/presets/tiny.yaml"
MODEL = json.loads(Path("infra/models/tiny/config.json").read_text())
BLOCK = 4 * 2 * 4 * 32 * 32 * 4  # layers, key and value, heads, values of a head, tokens, bytes of float32


def cfg(*overrides):
    return load_config(TINY, list(overrides))


def tiers(path, dram="0.5", more=""):
    return f"kv.tiers={{dram_gib: {dram}, disk: {{path: {path}, max_gib: 1, threads: 2}}{more}}}"


def refused(config, device="cpu", model=None):
    return [*tier_refusals(config, device, model)]


def test_without_tiers_vllm_is_given_no_connector():
    assert kv_transfer_config(cfg(), "cpu") is None and kv_transfer_config(RunConfig(), "cuda") is None
    assert "kv_transfer_config" not in engine_levers(cfg(), "cpu") and refusals(cfg(), "cpu", model=MODEL) == []


def test_on_a_gpu_the_tiers_are_vllms_tiering_and_our_disk(tmp_path):
    config = cfg(tiers(tmp_path, more=", eviction: arc"), "engine.device=cuda")
    assert kv_transfer_config(config, "cuda") == {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec",
            "cpu_bytes_to_use": 1 << 29,
            "eviction_policy": "arc",
            "secondary_tiers": [
                {
                    "type": "DiskTier",
                    "module_path": "serve.kv_tier.disk_tier",
                    "root_dir": str(tmp_path),
                    "max_bytes": 1 << 30,
                    "threads": 2,
                    "settings": settings_digest(config),
                }
            ],
        },
    }


def test_on_cpu_only_the_copying_is_another(tmp_path):
    config = cfg(tiers(tmp_path))
    cpu, gpu = (kv_transfer_config(config, device)["kv_connector_extra_config"] for device in ("cpu", "cuda"))
    assert (cpu.pop("spec_name"), cpu.pop("spec_module_path")) == ("HostTieringSpec", "serve.kv_tier.host_spec")
    assert gpu.pop("spec_name") == "TieringOffloadingSpec" and cpu == gpu
    assert "secondary_tiers" not in kv_transfer_config(cfg("kv.tiers.dram_gib=1"), "cpu")["kv_connector_extra_config"]


def test_the_levers_carry_the_tiers_to_the_replicas(tmp_path):
    config = cfg(tiers(tmp_path))
    again = RunConfig(**json.loads(json.dumps(lever_sections(config))))
    options = EngineOptions.from_config(config.engine, build="cpu")
    given = engine_kwargs(options, again)["kv_transfer_config"]
    assert given == kv_transfer_config(config, "cpu") and json.loads(json.dumps(given)) == given
    assert "kv_transfer_config" in class_fields("EngineArgs")


def test_what_decides_a_blocks_values_decides_the_digest():
    same = ("kv.tiers.dram_gib=1", "engine.kv_cache_bytes=1000000", "batching.max_num_active_seqs=2")
    other = ("engine.dtype=bfloat16", "kv.dtype=fp8", "quant.weights=fp8_per_tensor", "engine.max_model_len=1024")
    usual = settings_digest(cfg())
    assert {settings_digest(cfg(override)) for override in same} == {usual}
    assert len({usual, *(settings_digest(cfg(override)) for override in other)}) == 1 + len(other)


def test_the_disks_path_is_absolute_before_it_travels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolve_paths(load_config(None, [tiers("kv-disk")]))
    assert config.kv.tiers.disk.path == str(tmp_path / "kv-disk")
    assert resolve_paths(load_config(None, [])).kv == RunConfig().kv


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("kv.tiers.disk={path: /tmp, max_gib: 1}", "disk needs dram_gib"),
        ("kv.tiers={dram_gib: 1, disk: {path: /tmp}}", "disk.path needs disk.max_gib"),
        ("kv.tiers={dram_gib: 1, disk: {max_gib: 1}}", "disk does nothing without disk.path"),
        ("kv.tiers={dram_gib: 1, disk: {threads: 2}}", "disk does nothing without disk.path"),
        ("kv.tiers.eviction=arc", "eviction does nothing without dram_gib"),
        ("kv.tiers={dram_gib: 1, disk: {path: /tmp, max_gib: 1, threads: 257}}", "threads.*256"),
        ("kv.tiers.dram_gib=0", "must be a number above 0 or null"),
        ("kv.tiers.dram_gb=1", "dram_gb"),
        ("kv.transfer.role=producer", "role and extra do nothing without connector"),
        ("kv.transfer.connector=p2p_nccl", "nixl"),
    ],
)
def test_a_section_that_is_not_whole_is_refused(override, text):
    with pytest.raises(UserError, match=text):
        cfg(override)


def test_tiers_that_would_keep_nothing_are_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert refused(cfg(tiers(tmp_path / "new" / "folder")), model=MODEL) == []
    for path, text in ((file, "is a file; give a folder"), (file / "below", "is a file; give a folder")):
        assert text in "".join(refused(cfg(tiers(path))))
    config = cfg(tiers(tmp_path), "kv.prefix_cache=false")
    (said,) = refused(config)
    assert "does nothing with kv.prefix_cache=false" in said and said in refusals(config, "cpu")
    assert "names differ in every process" in refused(cfg(tiers(tmp_path), "kv.prefix_hash=xxhash"))[0]
    huge = cfg(f"kv.tiers={{dram_gib: 1, disk: {{path: {tmp_path}, max_gib: 1000000000}}}}")
    assert "the whole disk" in refused(huge)[0]


def test_more_memory_than_can_be_shared_is_refused(tmp_path, monkeypatch):
    (said,) = refused(cfg("kv.tiers.dram_gib=1000000000"))
    assert said.startswith("kv.tiers.dram_gib is 1e+09, but /dev/shm has ")
    monkeypatch.setattr("serve.kv_tier.checks.SHARED", tmp_path / "none")
    assert refused(cfg("kv.tiers.dram_gib=1000000000")) == []


@pytest.mark.parametrize("replicas", ["serve.replicas=4", "serve.autoscaling.max_replicas=4"])
def test_the_memory_of_all_replicas_must_fit(replicas, monkeypatch):
    monkeypatch.setattr("serve.kv_tier.checks.shutil.disk_usage", lambda path: SimpleNamespace(total=4 << 30))
    monkeypatch.setattr("serve.kv_tier.checks.SHARED", Path("/"))
    assert refused(cfg("kv.tiers.dram_gib=1", replicas)) == [] == refused(cfg("kv.tiers.dram_gib=4"))
    (said,) = refused(cfg("kv.tiers.dram_gib=1.1", replicas))
    assert said.startswith("kv.tiers.dram_gib is 1.1 for each of 4 replicas, but / has 4 in all; lower it, serve fewer")


@pytest.mark.parametrize("resolved", [False, True])
def test_a_url_is_no_folder(resolved):
    config = cfg(tiers("'s3://bucket/kv'"))
    (said,) = refused(resolve_paths(config) if resolved else config)
    assert said == "kv.tiers.disk.path is s3://bucket/kv, a URL; give a folder of the replica's machine"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the tests may run as root
    assert "cannot be written" in refused(cfg(tiers(tmp_path)))[0]


def test_tiers_too_small_for_a_prompt_or_a_block_are_refused(tmp_path):
    blocks = 512 // 32
    gib = 1 << 30
    assert BLOCK == 131072
    least, less = BLOCK * blocks / gib, (BLOCK * blocks - 1) / gib
    assert refused(cfg(f"kv.tiers.dram_gib={least}"), model=MODEL) == []
    said = refused(cfg(f"kv.tiers.dram_gib={less}"), model=MODEL)
    assert "holds 15 blocks of 131,072 bytes; a prompt of engine.max_model_len (512) tokens has 16" in said[0]
    suggested = said[0].rsplit(" ", 1)[1]
    assert refused(cfg(f"kv.tiers.dram_gib={suggested}"), model=MODEL) == []
    small = f"kv.tiers={{dram_gib: 1, disk: {{path: {tmp_path}, max_gib: {(BLOCK + 47) / gib}}}}}"
    said = refused(cfg(small), model=MODEL)
    assert "holds not one block of 131,120 bytes" in said[0]
    assert refused(cfg(small.replace(str((BLOCK + 47) / gib), said[0].rsplit(" ", 1)[1])), model=MODEL) == []


def test_a_connector_between_endpoints_is_vllms_by_its_name():
    config = cfg("kv.transfer={connector: nixl, role: producer, extra: {backends: [UCX]}}", "engine.device=cuda")
    assert engine_levers(config, "cuda")["kv_transfer_config"] == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"backends": ["UCX"]},
    }
    assert {name for name, _ in CONNECTORS.values()} <= kv_connectors()
    choices = type(config.kv.transfer).model_fields["connector"].annotation.__args__[0].__args__
    assert set(choices) == set(CONNECTORS)
    assert [*transfer_refusals(config, "cuda", lambda package: package == "nixl")] == []


@pytest.mark.parametrize(
    ("override", "device", "text"),
    [
        ("kv.transfer.connector=nixl", "cpu", "on CPU use kv.tiers"),
        ("kv.transfer.connector=mooncake", "cuda", "the package mooncake is not installed"),
        ("kv={transfer: {connector: nixl}, tiers: {dram_gib: 1}}", "cuda", "has one connector; remove one"),
    ],
)
def test_connectors_that_would_not_do_are_refused(override, device, text):
    assert any(text in said for said in transfer_refusals(cfg(override), device, lambda package: False))


def test_a_vllm_without_the_connector_is_told(monkeypatch):
    monkeypatch.setattr("serve.kv_tier.checks.kv_connectors", frozenset)
    said = [*transfer_refusals(cfg("kv.transfer.connector=nixl"), "cuda", lambda package: True)]
    assert said == [
        "kv.transfer.connector is nixl, but the installed vLLM has no NixlConnector; install the pinned release"
    ]


def test_tiers_are_read_back_from_what_the_engine_runs_with(tmp_path):
    asked = {"kv_transfer_config": kv_transfer_config(cfg(tiers(tmp_path)), "cpu")}
    extra = asked["kv_transfer_config"]["kv_connector_extra_config"]
    runs = SimpleNamespace(**asked["kv_transfer_config"])
    runs.kv_connector_extra_config = extra | {"marks_dir": "/tmp/x"}
    found = effective_engine(SimpleNamespace(kv_transfer_config=runs), None, log_stats=True)
    assert differences(compare(asked, found)) == []
    runs.kv_connector_extra_config = extra | {"cpu_bytes_to_use": 5}
    found = effective_engine(SimpleNamespace(kv_transfer_config=runs), None, log_stats=True)
    wrong = differences(compare(asked, found))
    assert [row.name for row in wrong] == ["kv_transfer_config.kv_connector_extra_config.cpu_bytes_to_use"]
