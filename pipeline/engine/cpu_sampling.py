"""A repair of vLLM 0.32 on CPU: without it, sampled replies under speculation do not follow the model.

To verify drafts, vLLM spreads each request's temperature, top-k and top-p over its draft tokens. On CPU it does so by a
kernel that writes into a copy of the result (`vllm.utils.cpu_triton_utils._expand_kernel_impl`), so what is divided by
is memory that nobody wrote (vLLM issue 55005). Greedy requests read none of it.
"""

import torch
from vllm.platforms import current_platform
from vllm.v1.sample import rejection_sampler


def expand_batch_to_tokens(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: float = 0, replace_to: float = 0
) -> torch.Tensor:
    """`x` [requests] as [tokens], in its own type: each value as often as its request has tokens, of which
    `cu_num_tokens` [requests] are the running totals; `replace_from` becomes `replace_to`."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return torch.repeat_interleave(values, counts, output_size=num_tokens)


def repair() -> None:
    """Puts the function above in the place of vLLM's, in this process and on CPU."""
    if current_platform.is_cpu():
        rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens
