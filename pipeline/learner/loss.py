"""The policy-gradient loss: pure functions on tensors, blind to what made the advantages.

Axis letters: N scored tokens, V vocabulary. Functions that take [N] accept any shape, as long as all agree.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # exp(20) is far past any clip; keeps exp finite, hence gradients free of 0 * inf

SUMS = ("tokens", "drawn", "parity_abs", "clipped", "capped", "importance", "neg_logprob")


def token_logprobs(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [N] (natural log, float32) of `targets` [N] under `logits` [N, V] / `temperature`.

    Feed it the positions that are scored, not the whole padded batch: the float32 copy is of [N, V]. The sampling
    temperature belongs on this side, as the engine reports the distribution it sampled from.
    """
    scaled = logits.float() / temperature
    return scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - scaled.logsumexp(-1)


def ppo_clip_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    global_tokens: int,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    importance_cap: float,
    drawn: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped surrogate (paper eq. 3) summed over unmasked tokens, divided by `global_tokens`; and its metrics.

    All tensors [N]. `logprobs` carries the gradient; `old_logprobs` are the learner's before this batch's first
    optimiser step; `behaviour_logprobs` the engine's. Per token, with r = exp(logprobs - old):

        objective = min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), and at least dual_clip * A where A < 0,

    weighted by the truncated importance weight min(exp(old - behaviour), importance_cap), which carries no gradient.
    `drawn` (None: all) is False where the engine did not draw the token after the tokens before it here: such a token
    has weight 1 where its behaviour log-probability is NaN, and is left out of parity and entropy in any case.
    Values at masked places are replaced before any arithmetic, so NaN or infinity there cannot reach loss, gradient
    or metrics. A fully masked call gives loss 0 and gradient 0. Metrics are detached sums over unmasked tokens
    (`SUMS`, see `summarise`) and `parity_abs_max`, the largest |old - behaviour|.
    """
    compared = mask if drawn is None else mask & drawn
    new, old, behaviour, advantage = (
        torch.where(mask, values, torch.zeros_like(values))
        for values in (logprobs, old_logprobs.detach(), behaviour_logprobs, advantages)
    )
    ratio = (new - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    surrogate = torch.minimum(ratio * advantage, bounded * advantage)
    surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual_clip * advantage), surrogate)
    gap = torch.where(compared | ~behaviour.isnan(), old - behaviour, 0.0)
    uncapped = gap.exp()
    importance = uncapped.clamp(max=importance_cap)
    loss = -torch.where(mask, importance * surrogate, 0.0).sum() / max(global_tokens, 1)
    with torch.no_grad():
        parity = torch.where(compared, gap.abs(), 0.0)
        sums = {
            "tokens": mask.float(),
            "drawn": compared.float(),
            "parity_abs": parity,
            "clipped": (ratio * advantage != surrogate).float(),
            "capped": (uncapped > importance_cap).float(),
            "importance": importance,
            "neg_logprob": torch.where(compared, -new, 0.0),
        }
        metrics = {name: torch.where(mask, values, 0.0).sum() for name, values in sums.items()}
        metrics["parity_abs_max"] = parity.amax() if gap.numel() else gap.new_zeros(())
    return loss, metrics


def summarise(metrics: dict[str, float]) -> dict[str, float]:
    """Means a token from the sums of `ppo_clip_loss`, added up over micro-batches and ranks; 0 where no token was.

    `parity_mean` and `parity_max`: |learner - engine| log-probability of drawn tokens (nats); `clip_fraction`:
    share of tokens whose objective was clipped; `capped_fraction`: share whose importance weight hit its cap;
    `importance_mean`; `entropy`: the estimate -mean log-probability of drawn tokens (nats).
    """
    tokens, drawn = max(metrics["tokens"], 1.0), max(metrics["drawn"], 1.0)
    return {
        "tokens": metrics["tokens"],
        "parity_mean": metrics["parity_abs"] / drawn,
        "parity_max": metrics["parity_abs_max"],
        "clip_fraction": metrics["clipped"] / tokens,
        "capped_fraction": metrics["capped"] / tokens,
        "importance_mean": metrics["importance"] / tokens,
        "entropy": metrics["neg_logprob"] / drawn,
    }
