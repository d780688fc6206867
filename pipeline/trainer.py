"""`DECSTrainer`: a run in the words of the article, as a thin face on a run's config. See docs/trainer.md."""

import json
from collections.abc import Mapping
from os import PathLike, fspath

from pipeline.config import RunConfig, UserError, load_config, nearest, resolve_paths
from pipeline.config.schema import Curriculum

Options = Mapping[str, object]
Overrides = dict[str, object]

JUDGES = {"exact": "exact", "lightweight_classifier": "learned"}
HUGE = 1e300  # no option is near it
TRAINING_DATA = "math_only"
NRP_DETECTOR = ("type", "threshold", "training_data")
DECOUPLED_REWARD = ("nrp_penalty", "redundancy_penalty")
CURRICULUM = ("easy_ratio_start", "easy_ratio_end", "schedule_steps")
ARGUMENTS = ("model", "nrp_detector", "decoupled_reward", "curriculum_scheduling", "config")


class DECSTrainer:
    """One DECS run (arXiv 2509.25827).

    `model` is a model folder. `nrp_detector`, `decoupled_reward` and `curriculum_scheduling` take the article's keys;
    what is left out keeps its value in `config` (a YAML file such as a preset; None: the defaults). All else is set by
    `overrides`, dotted keys of the config: `**{"run.steps": 20, "learner.lr": 3e-4}`; they win. UserError, in one
    sentence, for anything that cannot be run.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        nrp_detector: Options | None = None,
        decoupled_reward: Options | None = None,
        curriculum_scheduling: Options | None = None,
        *,
        config: str | None = None,
        **overrides: object,
    ) -> None:
        for key in overrides:
            if "." not in key:
                raise UserError(
                    f"DECSTrainer has no argument '{key}'{nearest(key, ARGUMENTS)} (options of the config are dotted "
                    'keys: **{"run.steps": 20})'
                )
        base = load_config(config, _texts(overrides))
        if not isinstance(model, str | PathLike) or not fspath(model):
            raise UserError(f"DECSTrainer's model is {model!r}; give a model folder")
        wanted: Overrides = {"model.path": str(fspath(model))}
        if nrp_detector is not None:
            wanted |= _detector(_known("nrp_detector", nrp_detector, NRP_DETECTOR))
        if decoupled_reward is not None:
            wanted |= _reward(_known("decoupled_reward", decoupled_reward, DECOUPLED_REWARD), base)
        if curriculum_scheduling is not None:
            wanted |= _curriculum(_known("curriculum_scheduling", curriculum_scheduling, CURRICULUM), base)
        self._file = config
        self.config: RunConfig = _resolved(config, {**wanted, **overrides})

    def train(self) -> dict[str, object]:
        """Runs the training to its end, as `python -m jobs.train` does: on the cluster in RAY_ADDRESS, else on one of
        its own. Returns the run's name, folder, steps, version, digest, ledger, publications and `report`, its page."""
        from jobs._training import run_training  # jobs stand on all rooms, so this is not for import time

        return run_training(self.config, self._file)


def _resolved(config: str | None, wanted: Overrides) -> RunConfig:
    """The config, with the parts checked that only a run's start would check."""
    from pipeline.preflight import check_training

    cfg = resolve_paths(load_config(config, _texts(wanted)))
    check_training(cfg)
    return cfg


def _texts(overrides: Overrides) -> list[str]:
    """Overrides as on the command line: JSON is YAML."""
    return [f"{key}={json.dumps(value, default=str, ensure_ascii=False)}" for key, value in overrides.items()]


def _known(argument: str, given: Options, known: tuple[str, ...]) -> Options:
    if not isinstance(given, Mapping):
        raise UserError(f"{argument} is {given!r}; give a mapping with {', '.join(known)}")
    for key in given:
        if key not in known:
            raise UserError(f"{argument} has no '{key}'{nearest(str(key), known)}")
    return given


def _number(where: str, value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -HUGE < value < HUGE:  # NaN is neither
        raise UserError(f"{where} is {repr(value)[:40]}; give a number")
    return value


# --- the article's words -> the config's ---


def _detector(given: Options) -> Overrides:
    """`type` is judge.name and `threshold` judge.threshold; `training_data` names what the judge was taught on."""
    kind = given.get("type", "lightweight_classifier")
    if not isinstance(kind, str) or kind not in JUDGES:
        raise UserError(f"nrp_detector type '{kind}' is unknown{nearest(str(kind), JUDGES)}")
    idle = [key for key in ("threshold", "training_data") if key in given] if kind == "exact" else []
    if idle:
        raise UserError(
            f"nrp_detector {idle[0]} does nothing with type 'exact', which compares answers and was not taught; leave "
            "it out, or use type 'lightweight_classifier'"
        )
    data = given.get("training_data", TRAINING_DATA)
    if data != TRAINING_DATA:
        raise UserError(
            f"nrp_detector training_data '{data}': the judge that is shipped was taught on '{TRAINING_DATA}'; teach "
            'one on other data and set its folder, **{"judge.path": FOLDER}'
        )
    wanted: Overrides = {"judge.name": JUDGES[str(kind)]}
    if "threshold" in given:
        wanted["judge.threshold"] = _share("nrp_detector threshold", given["threshold"])
    return wanted


def _share(where: str, value: object) -> float:
    number = _number(where, value)
    if not 0 <= number <= 1:
        raise UserError(f"{where} is {value}; give a share between 0 and 1")
    return number


def _reward(given: Options, base: RunConfig) -> Overrides:
    """`redundancy_penalty` is the gap between reward.r_plus and reward.r_zero; its sign is a matter of writing."""
    necessary = _number("decoupled_reward nrp_penalty", given.get("nrp_penalty", 0))
    if necessary != 0:
        raise UserError(
            f"decoupled_reward nrp_penalty is {necessary:g}: tokens up to the first right answer are never punished, "
            "or the model would unlearn to reach it; leave it at 0"
        )
    if "redundancy_penalty" not in given:
        return {"reward.name": "decs"}
    gap = abs(_number("decoupled_reward redundancy_penalty", given["redundancy_penalty"]))
    top = base.reward.r_plus
    most = top if base.reward.form == "code" else top / 2  # keeps the least reward of a right reply above 0
    if not 0 < gap < most:
        raise UserError(
            f"decoupled_reward redundancy_penalty is {given['redundancy_penalty']}: its size must lie between 0 and "
            f"{most:g}, both excluded, so that redundant tokens cost something and a right reply is still worth more "
            "than a wrong one"
        )
    return {"reward.name": "decs", "reward.r_zero": round(top - gap, 12)}


def _curriculum(given: Options, base: RunConfig) -> Overrides:
    """The linear rule. What other rules read goes back to its default, since an option that does nothing is refused."""
    now = {key: given.get(key, getattr(base.curriculum, key)) for key in CURRICULUM}
    start, end = (_share(f"curriculum_scheduling {key}", now[key]) for key in CURRICULUM[:2])
    steps = now["schedule_steps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or steps <= 0:
        raise UserError(f"curriculum_scheduling schedule_steps is {steps!r}; give a whole number of steps above 0")
    if end == 1:
        raise UserError(
            "curriculum_scheduling easy_ratio_end is 1: a batch of easy prompts alone holds no mixed ones, and nothing "
            "would teach the model to be right; give less than 1"
        )
    if start > end:
        raise UserError(
            f"curriculum_scheduling falls from {start:g} to {end:g}: easy prompts are where redundant tokens are "
            "punished, and their share grows as the thinking gets leaner; give easy_ratio_start at most easy_ratio_end"
        )
    others = {key: Curriculum.model_fields[key].default for key in ("kappa_rate", "kappa_start", "nrp_start")}
    return {f"curriculum.{key}": value for key, value in {"rule": "linear", **others, **now}.items()}
