"""Builds the Serve application; a Serve config names it as `serve.app:build`."""

from typing import Any

from ray import serve
from ray.serve.llm import LLMConfig, build_llm_deployment

from pipeline.config import schema
from pipeline.engine.options import EngineOptions
from serve.server import HotSwapServer

REASONING_PARSER = "deepseek_r1"  # text up to </think> becomes the reply's reasoning, also when the prompt opened it
ONGOING_REQUESTS = 100_000  # a replica's own admission limit answers 503 long before
# Options of a rollout engine that an endpoint does without: it takes text, and samples as the model folder says.
ROLLOUT_ONLY = ("model", "skip_tokenizer_init", "logprobs_mode", "generation_config")


def build(args: dict[str, Any]) -> serve.Application:
    """The application: replicas that each answer HTTP themselves, behind the cluster's proxy.

    `args`: `model_path` (folder of the model, and of the tokenizer), `serve` and `engine` (those sections of a run's
    config as plain data). The weights to serve come with the deployment's `user_config`, not from here.
    """
    options, engine = schema.Serve(**args["serve"]), schema.Engine(**args["engine"])
    resolved = EngineOptions.from_config(engine)
    config = llm_config(args["model_path"], options, resolved)
    exact = resolved.device == "cpu" and resolved.dtype == "float32"
    bound = {"drain_s": options.drain_deadline_s, "parity_limit": args.get("parity_limit") if exact else None}
    return build_llm_deployment(config, deployment_cls=serve.ingress()(HotSwapServer), bind_kwargs=bound)


def llm_config(model_path: str, options: schema.Serve, engine: EngineOptions) -> LLMConfig:
    """Ray Serve LLM's description of one model."""
    return LLMConfig(
        model_loading_config={"model_id": options.model_id, "model_source": model_path},
        engine_kwargs=engine_kwargs(engine),
        log_engine_metrics=False,
        deployment_config={
            "num_replicas": options.replicas,
            "max_ongoing_requests": ONGOING_REQUESTS,
            "health_check_timeout_s": 30,
            "ray_actor_options": {"num_cpus": 0},  # the bundle asks for the CPUs
        },
        **_hardware(options, engine),
    )


def _hardware(options: schema.Serve, engine: EngineOptions) -> dict[str, Any]:
    if engine.device == "cpu":
        bundle = {"CPU": options.cpus_per_replica}
        return {"accelerator_config": {"kind": "cpu"}, "placement_group_config": {"bundles": [bundle]}}
    bundle = {"CPU": options.cpus_per_replica, "GPU": 1}
    return {"placement_group_config": {"bundles": [bundle] * engine.tensor_parallel}}


def engine_kwargs(engine: EngineOptions) -> dict[str, Any]:
    """vLLM's engine arguments: those of a rollout engine, but for text."""
    shared = {name: value for name, value in engine.engine_args("").items() if name not in ROLLOUT_ONLY}
    return shared | {"reasoning_parser": REASONING_PARSER}
