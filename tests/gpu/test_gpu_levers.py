"""What the levers do on a GPU, where a CPU cannot tell. `-m gpu`; GPU_TEST_MODEL names a model folder. Not yet run."""

import os
from statistics import median

import pytest

from pipeline.config import ROOT, load_config
from pipeline.config.schema_serving import Speculation
from pipeline.engine.blocks.rules import RULES
from tests.gpu.gpu_engine import CONTEXT, run

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]

PROMPTS = [[10 + (i * 7 + n * 31) % 80 for i in range(200)] for n in range(8)]
CACHE = f"engine.kv_cache_bytes={1 << 30}"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """bfloat16 all through."""
    ran = run(tmp_path_factory.mktemp("plain") / "engine", PROMPTS, 64, CACHE)
    assert not ran.error, ran.error
    return ran


def gap(one, other):
    """Mean difference of log-probs (nats) up to where replies part. The prompts mean nothing, so they part early."""
    gaps = []
    for mine, theirs, p, q in zip(one.token_ids, other.token_ids, one.logprobs, other.logprobs, strict=True):
        same = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b), len(mine))
        gaps += [abs(a - b) for a, b in zip(p[:same], q[:same], strict=True)]
    assert len(gaps) >= len(one.token_ids), "most replies part at their first token"
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize(
    ("backend", "rule"), [("FLASH_ATTN", "flash_attn"), ("FLASHINFER", "flashinfer"), ("TRITON_ATTN", "triton")]
)
@pytest.mark.parametrize("size", [8, 16, 32, 64, 128])
def test_block_sizes_are_taken_or_refused_by_the_rule(tmp_path, plain, backend, rule, size):
    # Past our own check of the config: this asks vLLM itself.
    ran = run(tmp_path / "engine", PROMPTS[:2], 16, CACHE, block_size=size, attention_backend=backend)
    assert (not ran.error) == RULES[rule].allows(size), ran.error


def test_fp8_cache_holds_twice_as_much(tmp_path, plain):
    ran = run(tmp_path / "engine", PROMPTS, 64, CACHE, "kv.dtype=fp8")
    assert ran.capacity == 2 * plain.capacity, ran.error
    assert gap(ran, plain) < 0.1


def test_fp8_weights_take_half_the_memory(tmp_path, plain):
    ran = run(tmp_path / "engine", PROMPTS, 64, CACHE, "quant.weights=fp8_per_channel")
    assert ran.weight_bytes < 0.75 * plain.weight_bytes, ran.error  # embeddings and the head stay
    assert gap(ran, plain) < 0.2


def test_a_capped_prompt_lets_short_ones_answer_sooner(tmp_path):
    prompts = [[10 + i % 80 for i in range(CONTEXT - 100)], *PROMPTS]
    budget = f"batching.max_num_batched_tokens={CONTEXT // 8}"
    free = run(tmp_path / "free", prompts, 32, CACHE, budget)
    capped = run(
        tmp_path / "capped", prompts, 32, CACHE, budget, f"batching.long_prefill_token_threshold={CONTEXT // 64}"
    )
    assert not free.error and not capped.error, free.error + capped.error
    assert median(capped.first_token_s[1:]) < median(free.first_token_s[1:])
    assert gap(free, capped) < 0.05  # other shapes of the same sums


@pytest.mark.parametrize("name", ["eagle3", "mtp", "gemma4", "draft_model"])
def test_a_recipe_drafts_and_the_words_stay_the_same(tmp_path, name):
    """Each recipe's head says how to fetch its models; GPU_TEST_MODELS is the folder that holds them."""
    recipe = str(ROOT / f"infra/recipes/speculate_{name}.yaml")
    cfg = load_config(recipe)
    model, drafter = (_in_models(path) for path in (cfg.model.path, cfg.speculation.model))
    cfg = cfg.model_copy(update={"speculation": cfg.speculation.model_copy(update={"model": drafter})})
    drafted = run(tmp_path / "drafted", PROMPTS, 64, cfg=cfg, model=model)
    cfg = cfg.model_copy(update={"speculation": Speculation()})
    plain = run(tmp_path / "plain", PROMPTS, 64, cfg=cfg, model=model)
    assert not drafted.error and not plain.error, drafted.error + plain.error
    assert gap(drafted, plain) < 0.05  # greedy; kernels for several tokens round differently


def _in_models(path):
    return path and os.path.join(os.environ["GPU_TEST_MODELS"], os.path.basename(path))
