"""Builds the Serve application; a Serve config names it as `serve.app:build`."""

from typing import Any

from ray import serve
from ray.serve.llm import LLMConfig, build_llm_deployment

from pipeline.config import RunConfig, load_config, results_root, schema
from pipeline.engine.options import EngineOptions
from serve.arguments import config_of, overrides_of
from serve.first_snapshot import first_policy
from serve.levers import engine_kwargs
from serve.policy import Wanted
from serve.preconditions import checked_access
from serve.prefix_router import with_prefix_router
from serve.scaling import replica_options
from serve.server import HotSwapServer

ONGOING_REQUESTS = 100_000  # a replica's own admission limit answers 503 long before


def build(args: dict[str, Any]) -> serve.Application:
    """The application: replicas that each answer HTTP themselves, behind the cluster's proxy.

    `args`: those of `serve.arguments.app_args`, and then the weights to serve come with the deployment's `user_config`;
    or `config` (a run's config file) and `overrides`, as people write them for `serve run` and `serve deploy`: the
    application then starts with the model of that config.
    """
    if "config" in args:
        cfg = load_config(args["config"], overrides_of(args))
        policy = first_policy(cfg, results_root(cfg) / "endpoint")
        user_config = Wanted(policy, access=checked_access(cfg).to_config()).as_config()
        return application(cfg, policy.folder, {"user_config": user_config})
    return application(config_of(args), args["model_path"], {})


def application(cfg: RunConfig, model_path: str, options: dict[str, Any]) -> serve.Application:
    """One deployment of `HotSwapServer`, for `serve.routing: prefix` with a router beside it; `options` are further
    options of it."""
    engine = EngineOptions.from_config(cfg.engine)
    exact = engine.device == "cpu" and engine.dtype == "float32" and cfg.kv.dtype == "auto"
    bound = {
        "drain_s": cfg.serve.drain_deadline_s,
        "parity_limit": cfg.publish.parity_limit if exact else None,
    }
    app = build_llm_deployment(
        llm_config(model_path, cfg, engine),
        deployment_cls=serve.ingress()(HotSwapServer),
        bind_kwargs=bound,
        override_serve_options=options,
    )
    return with_prefix_router(app, cfg.serve.routing_imbalance) if cfg.serve.routing == "prefix" else app


def llm_config(model_path: str, cfg: RunConfig, engine: EngineOptions) -> LLMConfig:
    """Ray Serve LLM's description of one model."""
    return LLMConfig(
        model_loading_config={"model_id": cfg.serve.model_id, "model_source": model_path},
        engine_kwargs=engine_kwargs(engine, cfg),
        log_engine_metrics=False,
        deployment_config={
            **replica_options(cfg),
            "max_ongoing_requests": ONGOING_REQUESTS,
            "health_check_timeout_s": 30,
            "logging_config": {"enable_access_log": False},  # the replica writes one of its own
            "ray_actor_options": {"num_cpus": 0},  # the bundle asks for the CPUs
        },
        **_hardware(cfg.serve, engine),
    )


def _hardware(options: schema.Serve, engine: EngineOptions) -> dict[str, Any]:
    if engine.device == "cpu":
        bundle = {"CPU": options.cpus_per_replica}
        return {"accelerator_config": {"kind": "cpu"}, "placement_group_config": {"bundles": [bundle]}}
    bundle = {"CPU": options.cpus_per_replica, "GPU": 1}
    return {"placement_group_config": {"bundles": [bundle] * engine.tensor_parallel}}
