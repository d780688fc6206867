"""How many replicas: from `serve.replicas` or `serve.autoscaling` to Serve's deployment options. Pure."""

from typing import Any

from pipeline.config import RunConfig, UserError

METRICS_INTERVAL_S = 1.0  # each replica tells its count that often; Serve's own 10 s would come on top of every delay
MOST_LOOK_BACK_S = 30.0
LEAST_LOOK_BACK_S = 3.0


def target_requests(cfg: RunConfig) -> float:
    """Requests inside a replica (running and waiting) that autoscaling aims at: half of what its engine runs at once,
    so that the others have room while a new replica starts."""
    return cfg.serve.autoscaling.target_ongoing_requests or cfg.engine.max_num_seqs / 2


def replica_options(cfg: RunConfig) -> dict[str, Any]:
    """Serve's `num_replicas`, or its `autoscaling_config`; it takes only one of them.

    The replicas count what HAProxy sends them and tell Serve's controller, which compares the mean over the last
    `look_back_period_s` with the target. A mean over longer than `upscale_delay_s` would lengthen that delay.
    """
    asked = cfg.serve.autoscaling
    if asked.max_replicas is None:
        return {"num_replicas": cfg.serve.replicas}
    return {
        "autoscaling_config": {
            "min_replicas": asked.min_replicas,
            "max_replicas": asked.max_replicas,
            "target_ongoing_requests": target_requests(cfg),
            "upscale_delay_s": asked.upscale_delay_s,
            "downscale_delay_s": asked.downscale_delay_s,
            "metrics_interval_s": METRICS_INTERVAL_S,
            "look_back_period_s": min(max(asked.upscale_delay_s, LEAST_LOOK_BACK_S), MOST_LOOK_BACK_S),
        }
    }


def check_scaling(cfg: RunConfig) -> None:
    """UserError for a target that no replica reaches, because it refuses requests before."""
    target, limits = target_requests(cfg), {"serve.access.max_waiting": cfg.serve.access.max_waiting}
    if cfg.admission.max_requests:
        limits["admission.max_requests"] = cfg.admission.max_requests
    for name, most in limits.items():
        if cfg.serve.autoscaling.max_replicas and target >= most:
            raise UserError(
                f"serve.autoscaling aims at {target:g} requests in a replica, but {name} refuses more than {most}, so "
                "no replica would be added: lower serve.autoscaling.target_ongoing_requests"
            )


def replicas_text(cfg: RunConfig) -> str:
    """How many replicas, in words, for a dry run."""
    asked = cfg.serve.autoscaling
    if asked.max_replicas is None:
        return f"{cfg.serve.replicas} replica(s)"
    return f"{asked.min_replicas} to {asked.max_replicas} replicas, {target_requests(cfg):g} requests each,"
