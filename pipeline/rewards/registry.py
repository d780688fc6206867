"""From a configuration to a strategy."""

import importlib
from collections.abc import Mapping
from dataclasses import fields

from pipeline.config import UserError, nearest
from pipeline.config.schema import Reward
from pipeline.rewards.strategy import RewardStrategy

# A new reward is one file beside this one and one line here: name -> module:class.
STRATEGIES: dict[str, str] = {
    "adaptthink": "adaptthink:AdaptThink",
    "alp": "alp:Alp",
    "dapo_overlong": "dapo_overlong:DapoOverlong",
    "decs": "decs:Decs",
    "grpo": "grpo:Grpo",
    "kimi": "kimi:Kimi",
    "l1_exact": "l1_exact:L1Exact",
    "l1_max": "l1_max:L1Max",
    "laser": "laser:Laser",
    "laser_d": "laser_d:LaserD",
    "lc_r1": "lc_r1:LcR1",
    "length_penalty": "length_penalty:LengthPenalty",
    "shorter_better": "shorter_better:ShorterBetter",
    "thinkprune": "thinkprune:ThinkPrune",
    "tlmre": "tlmre:Tlmre",
}


def strategy_class(name: str) -> type[RewardStrategy]:
    """The class registered under `name`; UserError with the nearest name otherwise."""
    if name not in STRATEGIES:
        raise UserError(f"reward.name '{name}' is unknown{nearest(str(name), STRATEGIES)}")
    module, class_name = STRATEGIES[name].split(":")
    return getattr(importlib.import_module(f"pipeline.rewards.{module}"), class_name)


def build(config: Mapping[str, object] | Reward) -> RewardStrategy:
    """The strategy that `config` asks for: a mapping with `name` and its options, or the Reward section.

    UserError for an unknown name, an option that the strategy does not know, or an option that would do nothing
    (for a section: one that the strategy does not read and that was moved from its default).
    """
    options = _section_options(config) if isinstance(config, Reward) else dict(config)
    options.update(_extra_options(options.pop("options", {})))
    if "name" not in options:
        raise UserError(f"reward has no name{nearest('', STRATEGIES)}")
    name = str(options.pop("name"))
    chosen = strategy_class(name)
    known = _option_names(chosen)
    for option in options:
        if option not in known:
            raise UserError(f"reward '{name}' has no option '{option}'{_suggest(option, known)}")
    return chosen(**options)


def _section_options(section: Reward) -> dict[str, object]:
    """Options of a section, without the untouched ones that belong to other strategies."""
    kept = {"name", "options"} | _option_names(strategy_class(section.name))
    return {k: v for k, v in section.model_dump().items() if k in kept or v != Reward.model_fields[k].default}


def _extra_options(options: object) -> dict[str, object]:
    """The options under `options`, for strategies whose options the schema does not list by name."""
    if not isinstance(options, Mapping):
        raise UserError(f"reward.options is {options!r}; give names and values")
    for option in options:
        if option in Reward.model_fields:
            raise UserError(f"reward.options.{option} is not where it belongs; write reward.{option}")
    return dict(options)


def _option_names(chosen: type[RewardStrategy]) -> set[str]:
    return {field.name for field in fields(chosen)}


def _suggest(option: str, known: set[str]) -> str:
    return nearest(option, known) if known else "; it takes none"
