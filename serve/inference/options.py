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
    found: dict[str, str] = {}
    names: dict[str, str] = {}
    for name, value in options.items():
        key, text = _override(name, value, known)
        if found.setdefault(key, text) != text:
            raise UserError(f"`{names[key]}` and `{name}` are two names of {key}, with different values; give one")
        names[key] = name
    return [f"{key}={text}" for key, text in found.items()]


def _override(name: str, value: Any, known: list[str]) -> tuple[str, str]:
    if name in MODEL_NAMES:
        return "model.path", json.dumps(str(value))
    option = catalogue().get(name)
    if option is None:
        raise UserError(f"`{name}` is no option of InferenceOptimizer{nearest(name, known)}")
    if not (option.carry and option.use):
        raise UserError(advice((name,), value) or f"`{name}` cannot be set here")
    try:
        return option.use, json.dumps(value)
    except (TypeError, ValueError):
        raise UserError(
            f"`{name}` is {value!r:.80}, which no config holds; give a number, a text, a list or a dict"
        ) from None


def config_from(config: RunConfig | str | Path | None, options: Mapping[str, Any]) -> RunConfig:
    """The config with the options on top. UserError as `overrides_from` and `load_config` have it."""
    overrides = overrides_from(options)
    if isinstance(config, RunConfig):
        if overrides:
            raise UserError("give options in the config itself, or the config's file and options beside it")
        return config
    return load_config(str(config) if config is not None else None, overrides)
