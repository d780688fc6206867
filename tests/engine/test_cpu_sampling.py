"""vLLM's verification of drafts on CPU, with our repair: sampled tokens follow the model's law at each temperature."""

from types import SimpleNamespace

import pytest
import torch

from serve.speculation.exactness import compare_to_law

pytestmark = pytest.mark.slow  # importing vLLM takes seconds

REQUESTS, VOCAB = 6000, 6
DRAFT = [0, 3]  # proposed to every request


@pytest.fixture(scope="module")
def sampler():
    from vllm.platforms import current_platform
    from vllm.v1.sample import rejection_sampler

    from pipeline.engine.cpu_sampling import expand_batch_to_tokens, repair

    current_platform.import_kernels()
    current_platform.register_triton_kernel_overrides()
    repair()
    assert rejection_sampler.expand_batch_to_tokens is expand_batch_to_tokens
    return rejection_sampler


def test_values_are_spread_by_hand():
    from pipeline.engine.cpu_sampling import expand_batch_to_tokens

    totals = torch.tensor([2, 2, 5], dtype=torch.int32)  # the second request has no draft
    spread = expand_batch_to_tokens(torch.tensor([0.7, 9.0, 0.0]), totals, 5, replace_from=0, replace_to=1)
    assert torch.equal(spread, torch.tensor([0.7, 0.7, 1.0, 1.0, 1.0]))
    top_k = expand_batch_to_tokens(torch.tensor([4, 5, 6], dtype=torch.int32), totals, 5)
    assert top_k.tolist() == [4, 4, 6, 6, 6] and top_k.dtype == torch.int32


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_verified_tokens_follow_the_law(sampler, temperature):
    torch.manual_seed(3)
    logits = torch.tensor([[1.0, 0.2, 0.0, -1.0, 0.5, 0.1], [0.0, 0.4, 1.2, 0.9, -0.5, 0.3]])
    laws = torch.softmax(logits / temperature, -1)
    totals = torch.arange(2, 2 * REQUESTS + 1, 2, dtype=torch.int32)
    metadata = SimpleNamespace(
        all_greedy=False, all_random=True, generators={}, top_k=None, top_p=None,
        temperature=torch.full((REQUESTS,), temperature),
    )  # fmt: skip
    scaled = sampler.apply_sampling_constraints(logits.repeat(REQUESTS, 1), totals, metadata)
    out = sampler.rejection_sample(
        torch.tensor(DRAFT * REQUESTS, dtype=torch.int32), [2] * REQUESTS, 2, totals, None, scaled,
        torch.full((REQUESTS, 1), VOCAB - 1, dtype=torch.int32), metadata,
    )  # fmt: skip
    first, second = out[:, 0].tolist(), [row[1] for row in out.tolist() if row[0] == DRAFT[0]]
    assert compare_to_law(first, dict(enumerate(laws[0].tolist()))).verdict() == "same"
    assert compare_to_law(second, dict(enumerate(laws[1].tolist()))).verdict() == "same"
    assert all(row[1] == -1 for row in out.tolist() if row[0] != DRAFT[0])  # nothing is kept after a rejection
