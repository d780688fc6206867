"""Builds the Serve application; a Serve config names it as `serve.app:build`."""

from typing import Any

from ray import serve
from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
from ray.serve.llm import LLMConfig, build_llm_deployment
from ray.serve.llm.ingress import make_fastapi_ingress

from pipeline.config import schema
from pipeline.engine.options import EngineOptions
from serve.ingress import ENDPOINTS, PolicyIngress
from serve.server import HotSwapServer

STREAM_INTERVAL_MS = 10  # tokens of one reply are sent on together this often; 0 costs a hop a token
REASONING_PARSER = "deepseek_r1"  # text up to </think> becomes the reply's reasoning, also when the prompt opened it
REQUESTS_PER_SEQUENCE = 4  # requests a replica holds for each one it computes; the rest wait in the ingress
INGRESS_REQUESTS = 2000
INGRESS_CPUS = 0.1
# Options of a rollout engine that an endpoint does without: it takes text, and samples as the model folder says.
ROLLOUT_ONLY = ("model", "skip_tokenizer_init", "logprobs_mode", "generation_config")


def build(args: dict[str, Any]) -> serve.Application:
    """The application: replicas behind one ingress.

    `args`: `model_path` (folder of the model, and of the tokenizer), `serve` and `engine` (those sections of a run's
    config as plain data). The weights to serve come with the deployment's `user_config`, not from here.
    """
    options, engine = schema.Serve(**args["serve"]), schema.Engine(**args["engine"])
    config = llm_config(args["model_path"], options, EngineOptions.from_config(engine))
    replicas = build_llm_deployment(config, bind_kwargs={"drain_s": options.drain_deadline_s})
    ingress = serve.deployment(
        make_fastapi_ingress(PolicyIngress, endpoint_map=ENDPOINTS),
        num_replicas=1,
        max_ongoing_requests=INGRESS_REQUESTS,
        ray_actor_options={"num_cpus": INGRESS_CPUS},
    )
    cards = {options.model_id: to_model_metadata(options.model_id, config)}
    return ingress.bind(llm_deployments={options.model_id: replicas}, model_cards=cards)


def llm_config(model_path: str, options: schema.Serve, engine: EngineOptions) -> LLMConfig:
    """Ray Serve LLM's description of one model."""
    return LLMConfig(
        model_loading_config={"model_id": options.model_id, "model_source": model_path},
        engine_kwargs=engine_kwargs(engine),
        server_cls=HotSwapServer,
        log_engine_metrics=False,
        deployment_config={
            "num_replicas": options.replicas,
            "max_ongoing_requests": REQUESTS_PER_SEQUENCE * engine.max_num_seqs,
            "health_check_timeout_s": 30,
            "ray_actor_options": {"num_cpus": 0},  # the bundle asks for the CPUs
        },
        experimental_configs={"stream_batching_interval_ms": STREAM_INTERVAL_MS},
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
