"""The arguments of `serve.app:build`, as plain data: what of a run's config decides how replicas start.

Anything else must stay out: Serve restarts every replica of an application whose arguments change.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import RunConfig, UserError, load_config
from serve.levers import SECTIONS, lever_sections

NOT_OF_REPLICAS = {"host", "port", "access"}  # the proxy's, and what changes in place
KEYS = ("model_path", "serve", "engine", "levers", "parity_limit")
FROM_FILE = ("config", "overrides")


def app_args(cfg: RunConfig, model_path: str) -> dict[str, Any]:
    """`model_path` is the folder of the model and its tokenizer."""
    return {
        "model_path": model_path,
        "serve": cfg.serve.model_dump(mode="json", exclude=NOT_OF_REPLICAS),
        "engine": cfg.engine.model_dump(mode="json", exclude_unset=True),
        "levers": lever_sections(cfg),
        "parity_limit": cfg.publish.parity_limit,
    }


def config_of(args: Mapping[str, Any]) -> RunConfig:
    """The config that `app_args` was made from, as far as replicas need it."""
    if unknown := sorted(set(args) - set(KEYS)):
        raise UserError(f"serve.app:build has no argument '{unknown[0]}'; give config=FILE, or {', '.join(KEYS)}")
    levers = {name: args["levers"][name] for name in SECTIONS if name in args.get("levers", {})}
    publish = {"parity_limit": args["parity_limit"]} if "parity_limit" in args else {}
    return RunConfig.model_validate({"serve": args["serve"], "engine": args["engine"], "publish": publish, **levers})


def running_config(args: Mapping[str, Any]) -> RunConfig:
    """The config behind the arguments of a deployed application, whoever deployed it. UserError where its `config` is
    not to be read here."""
    return load_config(args["config"], overrides_of(args)) if "config" in args else config_of(args)


def overrides_of(args: Mapping[str, Any]) -> Sequence[str]:
    """The `overrides` beside `config`: a list, or one text with blanks between them (as `serve run` passes it)."""
    if unknown := sorted(set(args) - set(FROM_FILE)):
        raise UserError(f"serve.app:build takes no '{unknown[0]}' beside config; write it into overrides")
    given = args.get("overrides") or []
    return given.split() if isinstance(given, str) else list(given)
