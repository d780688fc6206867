"""What a training run's config can be refused for before anything starts; no torch, Ray or vLLM."""

from pipeline.config import Resources, RunConfig, check_resources
from pipeline.curriculum import kappa_rule
from pipeline.rewards import build, try_out


def check_training(cfg: RunConfig) -> Resources:
    """The CPUs and GPUs the run will ask for. UserError where reward, curriculum or placement cannot work."""
    try_out(build(cfg.reward), cfg.rollout.group_size, cfg.rollout.max_new_tokens)
    kappa_rule(cfg.curriculum)
    return check_resources(cfg)
