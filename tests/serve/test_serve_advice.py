"""Nine situations, nine first levers; every patch is a config that the endpoint accepts."""

import pytest

import jobs.advise
from pipeline.config import RunConfig, load_config
from serve.advice import COMPUTED, TRIED, UNTRIED, advise
from serve.advice_profile import Profile
from serve.lever_checks import refusals

GPU = {"device": "cuda", "gpus": 1, "fp8": True}
SLOW = {"itl_p95_ms": 80, "itl_target_ms": 40}
LONG = {"prompt_tokens_p95": 8000, "prompt_tokens_p50": 400}
SITUATIONS = {
    "DECS training": GPU | {"overthinking_share": 0.5, "own_weights": True},
    "a budget of thinking": GPU | {"overthinking_share": 0.5},
    "FP8 KV cache": GPU | {"kv_usage": 0.95},
    "a larger cache behind the KV cache (DRAM, then SSD)": GPU
    | {"shared_prefix_share": 0.6, "reuse_distance_tokens": 900_000, "kv_capacity_tokens": 500_000},
    "speculation": GPU | SLOW | {"batch_occupancy": 0.1},
    "no drafting": GPU | {"batch_occupancy": 0.9, "acceptance": 0.4},
    "a limit on one prompt's part of a step": GPU | SLOW | LONG,
    "plan the memory": GPU | {"context_tokens": 1 << 20},
    "limits at the door": GPU | {"peak_to_mean_rate": 5, "late_share": 0.2},
}
NOTHING = GPU | {
    "overthinking_share": 0.3, "kv_usage": 0.89, "preemptions": 0, "shared_prefix_share": 0.9,
    "context_tokens": 262_143, "reuse_distance_tokens": 100, "kv_capacity_tokens": 100, "batch_occupancy": 0.5,
    "peak_to_mean_rate": 9, "late_share": 0.05, **LONG, "itl_p95_ms": 40, "itl_target_ms": 40,
}  # fmt: skip


def config(*overrides):
    return load_config(None, ["engine.device=cuda", "engine.max_model_len=4096", *overrides])


def levers(figures, *overrides):
    return [advice.lever for advice in advise(Profile(**figures), config(*overrides))]


@pytest.mark.parametrize("lever", SITUATIONS)
def test_each_situation_has_its_own_first_lever(lever):
    assert levers(SITUATIONS[lever])[0] == lever and len(SITUATIONS) == 9


def test_on_the_edge_and_without_figures_nothing_is_advised():
    assert levers(NOTHING) == [] and levers(GPU) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("lever", SITUATIONS)
def test_patches_are_configs_that_the_endpoint_accepts(lever, device):
    base = ["engine.max_model_len=4096", f"engine.device={device}"]
    for advice in advise(Profile(**SITUATIONS[lever] | {"device": device}), load_config(None, base)):
        assert advice.evidence in (TRIED, COMPUTED, UNTRIED)
        assert all((advice.situation, advice.why, advice.precondition, advice.verify))
        patched = load_config(None, [*base, *advice.patch])
        assert refusals(patched, device, (9, 0) if device == "cuda" else None) == []
        assert not advice.patch or patched != load_config(None, base) or "none" in advice.patch[0]


def test_what_fails_comes_before_what_costs():
    both = SITUATIONS["no drafting"] | SITUATIONS["FP8 KV cache"] | SITUATIONS["plan the memory"]
    assert levers(both) == [
        "plan the memory", "a model that compresses its KV cache", "FP8 KV cache", "fewer sequences at once",
        "no drafting", "a larger step",
    ]  # fmt: skip


def test_preconditions_choose_the_lever():
    assert levers(SITUATIONS["FP8 KV cache"] | {"fp8": False}) == ["fewer sequences at once"]
    assert levers(SITUATIONS["FP8 KV cache"], "kv.dtype=fp8") == ["fewer sequences at once"]
    assert levers(GPU | {"preemptions": 1})[0] == "FP8 KV cache"
    split = levers(SITUATIONS["a limit on one prompt's part of a step"] | {"gpus": 2})
    assert split[1] == "prefill and decode on GPUs of their own"
    routed = levers(SITUATIONS["a larger cache behind the KV cache (DRAM, then SSD)"], "serve.replicas=2")
    assert routed[0] == "requests that begin alike to the same replica"
    (heads,) = advise(Profile(**SITUATIONS["speculation"], prediction_heads=True), config())
    assert heads.patch == ("speculation={method: mtp, k_max: 1}",) and heads.evidence == UNTRIED
    assert levers(SITUATIONS["speculation"] | {"acceptance": 0.8}) == []


def test_no_drafting_takes_back_what_was_set():
    drafting = "speculation={method: ngram, k_max: 4, prompt_lookup_max: 4, table: [[1, 4, 2]]}"
    policy = "speculation={policy: goodput, table: [], policy_options: {dwell: 4}, costs: {fixed: 2}, memory: m.json}"
    for given in ([drafting], [drafting, policy]):
        (patch,) = advise(Profile(**SITUATIONS["no drafting"]), config(*given))[0].patch
        assert config(*given, patch).speculation == RunConfig().speculation


def test_command(tmp_path, capsys):
    file = tmp_path / "profile.yaml"
    file.write_text("{device: cuda, fp8: true, kv_usage: 0.97}\n")
    assert jobs.advise.command(["--profile", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1. FP8 KV cache  [KV cache full; evidence: computed]\n   set     kv.dtype=fp8\n")
    file.write_text("{device: cpu}\n")
    assert jobs.advise.command(["--profile", str(file)]) == 0 and "nothing in these" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{device: cuda, kv_usge: 0.9}", "unknown figure 'kv_usge'; did you mean 'kv_usage'?"),
        ("{device: cuda, kv_usage: 9}", "kv_usage: "),
        ("{kv_usage: 0.9}", "device: "),
        ("[1]", "holds no mapping"),
        ("{", "not valid YAML"),
    ],
)
def test_unusable_profiles(tmp_path, capsys, text, part):
    file = tmp_path / "profile.yaml"
    file.write_text(text)
    assert jobs.advise.command(["--profile", str(file)]) == 2
    err = capsys.readouterr().err
    assert part in err and err.count("\n") == 1
