"""Options by the names that articles and vLLM give them: to this project's own, or to the reason why not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import RunConfig, UserError, load_config, nearest
from pipeline.config.option_catalogue import advice, catalogue

MODEL_NAMES = ("model", "model_path", "model_name")


def overrides_from(options: Mapping[str, Any]) -> list[str]:
    """`key=value` for each option that is set here under another name, such as `kv_cache_dtype`. UserError with the
    catalogue's sentence for what is not to be set so, or does not exist."""
    known = [*catalogue(), *MODEL_NAMES]
    found = []
    for name, value in options.items():
        if name in MODEL_NAMES:
            found.append(f"model.path={json.dumps(str(value))}")
            continue
        option = catalogue().get(name)
        if option is None:
            raise UserError(f"`{name}` is no option of InferenceOptimizer{nearest(name, known)}")
        if not (option.carry and option.use):
            raise UserError(advice((name,), value) or f"`{name}` cannot be set here")
        found.append(f"{option.use}={json.dumps(value)}")
    return found


def config_from(config: RunConfig | str | Path | None, options: Mapping[str, Any]) -> RunConfig:
    """The config with the options on top. UserError as `overrides_from` and `load_config` have it."""
    overrides = overrides_from(options)
    if isinstance(config, RunConfig):
        if overrides:
            raise UserError("give options in the config itself, or the config's file and options beside it")
        return config
    return load_config(str(config) if config is not None else None, overrides)
