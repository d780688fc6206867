"""The arms of a comparison: named changes of one config. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import RunConfig, UserError, config_digest, nearest
from pipeline.config.schema import Curriculum, KappaRule, Reward
from pipeline.rewards.registry import STRATEGIES

DECS = "decs"


@dataclass(frozen=True)
class Arm:
    """A reward, with the preset's curriculum or with none."""

    name: str
    reward: str
    curriculum: bool


def known_arms() -> dict[str, Arm]:
    """By name: every registered reward without a curriculum, DECS with it, and DECS without one of its two parts."""
    arms = [Arm(name, name, curriculum=False) for name in STRATEGIES if name != DECS]
    arms += [
        Arm(DECS, DECS, curriculum=True),
        Arm("decs-no-curriculum", DECS, curriculum=False),
        Arm("decs-no-decoupling", "length_penalty", curriculum=True),  # one reward for the whole sequence
    ]
    return {arm.name: arm for arm in arms}


def chosen_arms(text: str) -> list[Arm]:
    """The arms of a list with commas, each once; `all` is all of them, and `-name` leaves one out. UserError for an
    unknown one, or where none is left."""
    known = known_arms()
    given = [name.strip() for name in text.split(",") if name.strip()]
    for name in given:
        if name.removeprefix("-") not in known and name != "all":
            raise UserError(f"--arms: no arm is called '{name}'{nearest(name.removeprefix('-'), [*known, 'all'])}")
    asked = [arm for name in given if name[0] != "-" for arm in (known if name == "all" else [name])]
    names = [name for name in dict.fromkeys(asked) if f"-{name}" not in given]
    if not names:
        raise UserError(f"--arms names no arm; known: all, {', '.join(known)}")
    return [known[name] for name in names]


def at_seed(cfg: RunConfig, seed: int) -> RunConfig:
    """`cfg` with this seed; an interrupted training goes on. It does not measure itself: the comparison does."""
    fixed = {"seed": seed, "resume": True, "report_problems": 0}
    return cfg.model_copy(update={"run": cfg.run.model_copy(update=fixed)})


def arm_config(cfg: RunConfig, arm: Arm, seed: int) -> RunConfig:
    """The config of an arm's training: `cfg` with the arm's reward and curriculum and this seed, no endpoint, and one
    publication, at the end. A reward that `cfg` does not name has its defaults and `comparison.reward_options`."""
    options = cfg.comparison.reward_options.get(arm.reward, {})
    own = cfg.reward if cfg.reward.name == arm.reward else Reward(name=arm.reward)
    changes: dict[str, Any] = {
        "run": at_seed(cfg, seed).run,
        "reward": own.model_copy(update={"options": {**own.options, **options}}),
        "publish": cfg.publish.model_copy(update={"every": cfg.run.steps, "endpoint": False, "gate": False}),
        "comparison": type(cfg.comparison)(),
    }
    if not arm.curriculum:
        limits = {"max_rounds": cfg.curriculum.max_rounds, "min_batch_share": cfg.curriculum.min_batch_share}
        changes["curriculum"] = Curriculum(rule=KappaRule.OFF, **limits)
    return cfg.model_copy(update=changes)


def check_comparable(cfg: RunConfig, arms: Sequence[Arm]) -> None:
    """UserError where the arms could not have equal budgets, or one cannot run with its options."""
    from pipeline.curriculum import kappa_rule
    from pipeline.rewards import build

    if cfg.curriculum.max_rounds != 1:
        raise UserError(
            f"curriculum.max_rounds is {cfg.curriculum.max_rounds}: arms that sample again until a batch is full spend "
            "more than others; a comparison needs 1"
        )
    if "://" in cfg.storage.uri:
        raise UserError(f"storage.uri is {cfg.storage.uri}: a comparison keeps its arms in a folder; set one")
    if not cfg.problems.held_out:
        raise UserError("a comparison measures on problems.held_out; add a source to it")
    for reward in cfg.comparison.reward_options:
        if reward not in STRATEGIES:
            raise UserError(f"comparison.reward_options names no reward: '{reward}'{nearest(reward, STRATEGIES)}")
    for arm in arms:
        made = arm_config(cfg, arm, cfg.run.seed)
        try:
            build(made.reward)
            kappa_rule(made.curriculum)
        except UserError as error:
            raise UserError(f"arm {arm.name}: {error}") from None


def identity(cfg: RunConfig, model_digest: str) -> str:
    """What a result must have been made with to count as this arm's: the config without names and places, and the
    start model's weights."""
    run = cfg.run.model_copy(update={"name": None})
    plain = RunConfig()
    same = {"run": run, "storage": plain.storage, "tracking": plain.tracking, "comparison": plain.comparison}
    return f"{config_digest(cfg.model_copy(update=same))[:32]}-{model_digest[:16]}"
