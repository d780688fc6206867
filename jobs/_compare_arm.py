"""One arm and seed of a comparison, from config to record: train, measure, keep."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import _measure
from jobs._compare_arms import Arm, arm_config, at_seed, identity
from jobs._compare_train import train_arm
from pipeline.config import RunConfig, UserError, write_whole
from pipeline.evaluation.comparison import START

logger = logging.getLogger(__name__)
Show = Callable[[str], object]

RESULT = "result.json"
CURVES = ("accuracy", "tokens_mean", "nrp_share_tokens", "easy_share_realised", "groups_kept")


@dataclass(frozen=True)
class Place:
    """One arm (None: the start model, untrained) with one seed, its config, its folder and its identity."""

    arm: Arm | None
    seed: int
    cfg: RunConfig
    folder: Path
    identity: str

    @property
    def name(self) -> str:
        """`decs-s0`."""
        return f"{self.arm.name if self.arm else START}-s{self.seed}"


def place(cfg: RunConfig, arm: Arm | None, seed: int, folder: Path, model_digest: str, tracking: str) -> Place:
    """Where and how an arm of the comparison `cfg.run.name` in `folder` runs. Its training keeps to its own folder,
    and reports to `tracking` under a name that no other comparison has."""
    name = f"{arm.name if arm else START}-s{seed}"
    home = folder / "arms" / name
    made = arm_config(cfg, arm, seed) if arm else at_seed(cfg, seed)
    moved = {
        "run": made.run.model_copy(update={"name": f"{cfg.run.name}.{name}"}),
        "storage": made.storage.model_copy(update={"uri": str(home)}),
        "tracking": made.tracking.model_copy(update={"uri": tracking}),
    }
    return Place(arm, seed, made.model_copy(update=moved), home, identity(made, model_digest))


def kept_record(at: Place) -> dict | None:
    """The record of an arm that was finished before; None where there is none.

    UserError where it was made with another config or start model: it would not be comparable with the others.
    """
    file = at.folder / RESULT
    if not file.exists():
        return None
    record = json.loads(file.read_text())
    if record.get("identity") != at.identity:
        raise UserError(
            f"{file} was made with another config or start model ({record.get('identity')}, now {at.identity}); "
            "give a new run.name, or delete that folder to run the arm again"
        )
    return record


def run_arm(at: Place, engine: Any, tracker: Any, ray_address: str, on_step: Show) -> dict:
    """Trains the arm, measures the outcome with `engine` on held-out problems, and keeps the record."""
    if at.arm is None:
        return _keep(at, {}, *_measured(at, engine))
    began = time.monotonic()
    run_id = tracker.add_child(at.cfg.run.name)
    train_arm(at.cfg, at.folder, ray_address, on_step)
    seconds = {"train": round(time.monotonic() - began, 1)}
    run = at.folder / str(at.cfg.run.name)
    trained = json.loads((run / "result.json").read_text())
    version, digest = int(trained["version"]), str(trained["digest"])
    engine.swap(str(run / "published" / f"v{version}"), version, digest)
    measured, took = _measured(at, engine)
    log = _Child(at.cfg, run_id)
    log.evaluation(measured)
    return _keep(at, {**trained_facts(trained, log.history), "mlflow_run_id": run_id}, measured, seconds | took)


def trained_facts(trained: dict, history: dict[str, dict[int, float]]) -> dict[str, object]:
    """What a training took and how it went, from its result and its metrics by full name."""
    from pipeline.tracking import metric_name

    def points(short: str) -> dict[int, float]:
        return history.get(metric_name(short), {})

    kept, ledger = sum(points("groups_kept").values()), trained["ledger"]
    return {
        "traces": int(sum(points("traces_sampled").values())),
        "tokens_sampled": int(sum(points("tokens_sampled").values())),
        "kept_share": kept / max(1, ledger["trained"] + ledger["dropped"]),
        "issued_digest": trained["issued_digest"],
        "digest": trained["digest"],
        "curves": {short: [[step, value] for step, value in points(short).items()] for short in CURVES},
    }


def _measured(at: Place, engine: Any) -> tuple[dict, dict[str, float]]:
    from pipeline.evaluation.measured import measure
    from pipeline.loop.assemble import load_split, load_tokenizer

    began = time.monotonic()
    tokenizer, problems = load_tokenizer(at.cfg.model.path), load_split(at.cfg, "held_out")
    traces = engine.sample(at.cfg, tokenizer, problems, lambda done: None)
    scored = asyncio.run(_measure.score(at.cfg, tokenizer, problems, traces))
    found = measure(scored, {problem.id: problem for problem in problems}, at.cfg.model.think_end)
    return found, {"evaluate": round(time.monotonic() - began, 1)}


def _keep(at: Place, facts: dict, measured: dict, seconds: dict[str, float]) -> dict:
    """Writes the record in one step, so that a half-written one never counts as finished."""
    record = {
        "arm": at.arm.name if at.arm else START,
        "seed": at.seed,
        "identity": at.identity,
        **facts,
        "seconds": seconds,
        "measured": measured,
    }
    at.folder.mkdir(parents=True, exist_ok=True)
    write_whole(at.folder / RESULT, json.dumps(record, indent=1))
    return record


class _Child:
    """The finished MLflow run of an arm."""

    def __init__(self, cfg: RunConfig, run_id: str) -> None:
        from pipeline.tracking import Tracker

        self.steps = cfg.run.steps
        self.tracker = Tracker.from_config(cfg)
        self.tracker.attach(run_id)
        self.history = self.tracker.history()

    def evaluation(self, measured: dict) -> None:
        """Logs the held-out figures, whole and by family, at the last step."""
        from pipeline.evaluation.measured import FIGURES
        from pipeline.tracking import for_source

        numbers = {f"eval_{name}": measured[name] for name in FIGURES}
        for family, figures in measured["by_family"].items():
            numbers |= {for_source(f"eval_{name}", family): figures[name] for name in FIGURES}
        self.tracker.log_step(self.steps, {name: value for name, value in numbers.items() if value is not None})
