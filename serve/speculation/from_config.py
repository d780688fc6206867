"""From the `speculation` section of a run's config to vLLM's engine arguments, and what of it would not work. Pure."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.config import UserError, resolve_path
from pipeline.config.schema_serving import Speculation
from serve.speculation.settings import Settings, engine_options
from serve.speculation.ssd_settings import KEY as SSD_KEY
from serve.speculation.ssd_settings import PROPOSER, SsdSettings

# vLLM counts drafts only while it counts anything, and tells a reply's acceptance only when asked to.
COUNTED = {"disable_log_stats": False, "per_request_spec_decode_metrics": "summary"}


def settings_of(spec: Speculation) -> Settings | None:
    """The policy that the section asks for, with its options; None without one."""
    if spec.policy is None:
        return None
    options = spec.policy_options.model_dump(exclude_none=True)
    if "table" in options:
        options["table"] = str(resolve_path(options["table"]))
    costs = spec.costs.model_dump(exclude_none=True)
    return Settings(spec.policy, options, costs, spec.end_of_thinking, spec.log, spec.memory)


def speculation_args(spec: Speculation) -> dict[str, Any]:
    """Keyword arguments of vLLM's `EngineArgs`, plain JSON; none without speculation. UserError for a policy that
    cannot be made."""
    if spec.method == "none":
        return {}
    speculative, settings = _speculative(spec), settings_of(spec)
    args = COUNTED | (engine_options(settings, speculative) if settings else {"speculative_config": speculative})
    if spec.method == "ssd":
        args["additional_config"] = args.get("additional_config", {}) | {SSD_KEY: _ssd(spec).as_config()}
    return args


def speculation_line(spec: Speculation) -> str:
    """What of it a plan says."""
    if spec.method == "none":
        return "speculation: none"
    length = f"up to {spec.k_max} tokens" if spec.k_max else "its own lengths"
    chosen = f"by the policy {spec.policy}" if spec.policy else "by the table" if spec.table else "fixed"
    return f"speculation: {spec.method}, {length}" + ("" if spec.method == "suffix" else f", {chosen}")


def _speculative(spec: Speculation) -> dict[str, Any]:
    if spec.method == "ssd":
        method, model = "custom_class", PROPOSER
    elif spec.method == "custom_class":
        method, model = spec.method, spec.model
    else:
        method, model = spec.method, str(resolve_path(spec.model)) if spec.model else None
    chosen = {
        "method": method,
        "num_speculative_tokens": spec.k_max,
        "model": model,
        "prompt_lookup_min": spec.prompt_lookup_min,
        "prompt_lookup_max": spec.prompt_lookup_max,
        "num_speculative_tokens_per_batch_size": [list(row) for row in spec.table] or None,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _ssd(spec: Speculation) -> SsdSettings:
    given = {"branches": spec.branches, "backup": spec.backup}
    return replace(SsdSettings(), **{name: value for name, value in given.items() if value is not None})


def policy_refusals(spec: Speculation, replicas: int) -> Iterator[str]:
    """One sentence for each part of the policy that would fail, or do nothing, in an endpoint of that many replicas."""
    settings = settings_of(spec)
    if settings is None:
        return
    try:
        settings.parts(spec.k_max)
    except UserError as error:
        yield f"speculation.policy: {error}"
    if spec.policy == "static" and spec.policy_options.k == 0:
        yield "speculation.policy_options.k is 0, so nothing is ever drafted; set speculation.method to none instead"
    for name in ("log", "memory"):
        if getattr(spec, name) and replicas > 1:
            yield (
                f"speculation.{name} is the file of one engine, and {replicas} replicas would write over each other: "
                "remove it, or run one replica while it is written"
            )


def drafter_refusals(spec: Speculation) -> Iterator[str]:
    """One sentence when the Python class of `custom_class` cannot be found here."""
    if spec.method == "custom_class":
        module = (spec.model or "").rpartition(".")[0]
        try:
            found = bool(module) and importlib.util.find_spec(module) is not None
        except ImportError:
            found = False
        if not found:
            yield f"speculation.model is {spec.model}, but there is no module {module or '(none)'} to import it from"
