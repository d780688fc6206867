"""KV cache and weights of public models, worked out by hand, and vLLM's own accounting beside ours."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import ROOT, UserError
from pipeline.engine.kv_layout import KvLayout, kv_layout
from pipeline.engine.memory import MAX_CONTEXT, Pool, kv_plan
from pipeline.engine.weight_count import counted_parameters, stored_parameters

MILLION = 1 << 20
SMALL = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4}
QWEN3_4B = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,  # not 2560 / 32
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
R1_1_5B = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8960,
    "vocab_size": 151936,
    "sliding_window": 4096,
    "use_sliding_window": False,
}
R1_7B = R1_1_5B | {
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
}
LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "intermediate_size": 18432,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
}
layouts = st.builds(
    KvLayout, st.integers(0, 20), st.integers(0, 20), st.integers(1, 300), st.integers(1, 8), st.integers(1, 64)
).filter(lambda layout: layout.full + layout.windowed > 0)
pools = st.builds(
    Pool, layouts, st.sampled_from([16, 32, 128]), st.sampled_from(["float32", "fp8"]), step_tokens=st.integers(1, 500)
)


@pytest.mark.parametrize(
    ("config", "parameters", "token_bytes"),
    [
        (QWEN3_4B, 4_022_468_096, 147_456),  # 2 x 36 x 8 x 128 x 2
        (R1_1_5B, 1_777_088_000, 28_672),  # 2 x 28 x 2 x 128 x 2
        (R1_7B, 7_615_616_512, 57_344),  # 2 x 28 x 4 x 128 x 2
        (LLAMA_8B, 8_030_261_248, 131_072),  # 2 x 32 x 8 x 128 x 2
        (DEEPSEEK_V3, 671_026_419_200, 70_272),  # 61 x (512 + 64) x 2
    ],
    ids=["qwen3-4b", "r1-distill-1.5b", "r1-distill-7b", "llama-3.1-8b", "deepseek-v3"],
)
def test_public_models(config, parameters, token_bytes):
    assert counted_parameters(config) == parameters
    full, half = (kv_plan(Pool(kv_layout(config), 16, dtype), MILLION) for dtype in ("bfloat16", "fp8"))
    assert (full.bytes_per_token, half.bytes_per_token) == (token_bytes, token_bytes // 2)
    assert full.needed_bytes == (MILLION + 16) * token_bytes and full.blocks is full.fits is None


def test_a_pool_by_hand():
    # 4 layers x 4 heads x 64 numbers x 4 bytes = 4,096 a token; 32 tokens = 131,072 a block; 64 MiB = 512 blocks.
    pool = Pool(kv_layout(SMALL), 32, "float32")
    plan = kv_plan(pool, 500, 64 << 20)
    assert (plan.bytes_per_token, plan.bytes_per_block, plan.blocks_per_request, plan.blocks) == (4096, 131072, 16, 512)
    assert (plan.concurrency, plan.capacity_tokens, plan.longest, plan.fits) == (32.0, 16000, 511 * 32, True)


def test_the_block_that_is_never_given_out_counts():
    pool = Pool(kv_layout(SMALL), 32, "float32")
    assert kv_plan(pool, 64, 3 * 131072).fits and not kv_plan(pool, 64, 3 * 131072 - 1).fits
    short = kv_plan(pool, 65, 3 * 131072)
    assert (short.fits, short.needed_bytes, short.longest) == (False, 4 * 131072, 64)
    assert kv_plan(pool, 1, 0).longest == 0


def test_tensor_parallel_shares_heads_but_not_a_latent():
    assert Pool(kv_layout(LLAMA_8B), 16, "bfloat16", 4).bytes_per_block == 16 * 131072 // 4
    assert Pool(kv_layout(R1_1_5B), 16, "bfloat16", 8).bytes_per_block == 16 * 28672 // 2  # 2 heads: one for each rank
    assert Pool(kv_layout(DEEPSEEK_V3), 64, "bfloat16", 8).bytes_per_block == 64 * 70272


def test_a_window_over_all_layers():
    layout = kv_layout(SMALL | {"model_type": "mistral", "sliding_window": 100})
    assert (layout.full, layout.windowed, layout.window) == (0, 4, 100)
    pool = Pool(layout, 32, "float32", step_tokens=60)
    # min(100 - 1 + 60, context) tokens, in blocks of 32, and one more
    assert [pool.blocks_per_request(n) for n in (32, 96, 159, 10**6)] == [2, 4, 6, 6]
    assert pool.longest(7) == MAX_CONTEXT and pool.longest(6) == 128
    assert Pool(layout, 32, "float32").blocks_per_request(3200) == 101


def test_windows_in_some_layers():
    types = (["sliding_attention"] * 5 + ["full_attention"]) * 2  # 2 full, 10 windowed: groups of 2 layers, 1 + 5
    config = SMALL | {"model_type": "gemma3_text", "num_hidden_layers": 12, "layer_types": types, "sliding_window": 100}
    pool = Pool(kv_layout(config), 32, "bfloat16", step_tokens=60)
    assert pool.groups == (1, 5, 2) and pool.bytes_per_block == 2 * 32 * 4 * 64 * 2
    assert pool.blocks_per_request(3200) == 100 + 5 * 6


def test_nearly_as_many_windows_as_full_layers_are_padded():
    pool = Pool(KvLayout(13, 12, 100, 4, 64), 16, "bfloat16", step_tokens=16)
    assert pool.groups == (1, 1, 13)
    assert Pool(KvLayout(8, 12, 100, 4, 64), 16, "bfloat16").groups == (1, 2, 8)  # 12 is 1.5 times 8: not padded


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_type": "mamba2", "num_hidden_layers": 2}, "model type 'mamba2' is not counted"),
        ({"model_type": "qwen3_next", "num_hidden_layers": 2}, "'qwen3_next'"),
        ({"num_hidden_layers": 2}, "'None'"),
        (SMALL | {"model_type": "gemma2"}, "does not list layer_types"),
        (SMALL | {"layer_types": ["linear_attention"] * 4}, "linear_attention"),
        (SMALL | {"layer_types": ["full_attention"] * 3}, "not counted"),
        (R1_1_5B | {"use_sliding_window": True}, "which layers is unknown"),
        (DEEPSEEK_V3 | {"index_topk": 2048}, "sparse attention"),
        (SMALL | {"num_kv_shared_layers": 2}, "share a cache"),
        (SMALL | {"num_hidden_layers": None}, "num_hidden_layers is None"),
    ],
)
def test_what_is_not_counted_is_refused(config, text):
    with pytest.raises(UserError) as caught:
        kv_layout(config)
    assert text in str(caught.value)


def test_the_models_that_ship_with_the_repository():
    for name in ("tiny", "judge"):
        folder = ROOT / "infra/models" / name
        assert stored_parameters(folder) == counted_parameters(json.loads((folder / "config.json").read_text()))
    assert counted_parameters({"model_type": "gpt_oss"}) is None


def test_a_file_that_holds_no_weights(tmp_path):
    with pytest.raises(UserError, match="has no \\*.safetensors"):
        stored_parameters(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(UserError, match="is not a safetensors file"):
        stored_parameters(tmp_path)


@given(pools, st.integers(1, 5000), st.integers(0, 1 << 24))
def test_what_fits_is_at_most_the_longest(pool, context, budget):
    plan = kv_plan(pool, context, budget)
    assert plan.fits == (plan.needed_bytes <= budget) == (context <= plan.longest)
    assert pool.blocks_per_request(context) <= pool.blocks_per_request(context + 1)


def _specs(layout, block_size):
    """vLLM's description of each layer."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

    keys = {"block_size": block_size, "num_kv_heads": layout.kv_heads, "dtype": torch.bfloat16}
    if layout.mla:
        return {f"full.{i}": MLAAttentionSpec(**keys, head_size=layout.values) for i in range(layout.full)}
    keys["head_size"] = layout.values // 2
    specs = {f"full.{i}": FullAttentionSpec(**keys) for i in range(layout.full)}
    return specs | {f"win.{i}": SlidingWindowSpec(**keys, sliding_window=layout.window) for i in range(layout.windowed)}


def _vllm_config(context, step):
    """What vLLM's accounting reads of its config."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=context, original_max_model_len=context),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, tensor_parallel_size=1),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=0,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBHNC,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=step,
    )


@pytest.mark.slow
@pytest.mark.parametrize("context", [500, 4096])
@pytest.mark.parametrize(
    "layout",
    [
        kv_layout(LLAMA_8B),
        kv_layout(DEEPSEEK_V3),
        KvLayout(0, 8, 300, 4, 64),
        KvLayout(2, 10, 300, 4, 64),
        KvLayout(13, 12, 300, 4, 64),
        KvLayout(8, 12, 300, 4, 64),
        KvLayout(3, 10, 300, 4, 64),
    ],
    ids=str,
)
def test_vllm_counts_the_same(layout, context):
    """vLLM's own functions on the same layers; imports vLLM, starts no engine."""
    from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs

    step, budget = 256, 2 << 30
    specs, config = _specs(layout, 32), _vllm_config(context, step)
    plan = kv_plan(Pool(layout, 32, "bfloat16", step_tokens=step), context, budget)
    (found,) = get_kv_cache_configs(config, [specs], [budget])
    assert (found.num_blocks, *get_kv_cache_capacity(config, found)) == (
        plan.blocks,
        plan.capacity_tokens,
        pytest.approx(plan.concurrency),
    )
    get_kv_cache_configs(config, [specs], [plan.needed_bytes])
    with pytest.raises(ValueError, match="To serve at least one request"):
        get_kv_cache_configs(config, [specs], [plan.needed_bytes - 1])


@pytest.mark.slow
def test_one_page_size_for_windowed_and_full_layers_holds_more():
    """Two kinds of layers become groups with pages of one size; without groups all layers keep the whole context."""
    from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs

    layout, context, budget = KvLayout(2, 10, 300, 4, 64), 4096, 1 << 30
    specs = _specs(layout, 32)
    (apart,) = get_kv_cache_configs(_vllm_config(context, 256), [specs], [budget])
    assert len(apart.kv_cache_groups) == 6  # one of two full layers, five of two windowed ones
    assert len({group.kv_cache_spec.page_size_bytes for group in apart.kv_cache_groups}) == 1
    alike = _vllm_config(context, 256)
    alike.scheduler_config.disable_hybrid_kv_cache_manager = True
    (together,) = get_kv_cache_configs(alike, [_specs(layout, 32)], [budget])
    assert len(together.kv_cache_groups) == 1
    capacity = [get_kv_cache_capacity(alike, found)[0] for found in (apart, together)]
    assert capacity[0] > 3 * capacity[1]
