"""Starts a run's actors on Ray, trains, and ends them. The driver's side of the loop."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from pipeline.config import RunConfig, UserError, check_resources, config_digest
from pipeline.engine.options import EngineOptions, engine_env
from pipeline.loop.judging import judge_identity
from pipeline.loop.progress import stall_line
from pipeline.loop.remote import RunFailed, get
from pipeline.loop.reporting import keep_report, measure
from pipeline.loop.snapshots import start_digest
from pipeline.tracking import code_tags

logger = logging.getLogger(__name__)

POLL_S = 1.0
Show = Callable[[str], None]


def wait_for_room(cfg: RunConfig, show: Show) -> None:
    """Returns once the cluster has room for the run.

    UserError at once where it never will (says needed and there), and after loop.placement_deadline_s where other
    jobs hold what is needed.
    """
    need = check_resources(cfg)
    asked = ", ".join(f"{part.count} {part.name} x {part.cpus:g} CPU + {part.gpus:g} GPU" for part in need.parts)
    if short := need.shortfall(ray.cluster_resources()):
        raise UserError(f"the cluster is too small: {short} (asked: {asked}); lower these or use a larger cluster")
    deadline = time.monotonic() + cfg.loop.placement_deadline_s
    while short := need.shortfall(ray.available_resources()):
        if time.monotonic() > deadline:
            raise UserError(
                f"other jobs hold what this run needs: {short} free after {cfg.loop.placement_deadline_s:g} s "
                f"(asked: {asked}); wait for them, or raise loop.placement_deadline_s"
            )
        show(f"waiting for room on the cluster: {short} free")
        time.sleep(min(5.0, cfg.loop.placement_deadline_s))


class Actors:
    """The actors of one run, named inside its namespace. They die with the driver."""

    def __init__(self, cfg: RunConfig, folder: Path, make_publisher: Callable[[Any], Any] | None) -> None:
        from pipeline.engine.actor import RolloutActor
        from pipeline.judge.actor import JudgeActor
        from pipeline.loop.controller import Controller
        from pipeline.tracking import Tracker, tracking_uri

        plain = cfg.model_dump(mode="json")
        tracking = cfg.tracking
        self.tracker = _actor(Tracker, "tracker", cpus=0).remote(
            tracking_uri(cfg), tracking.experiment, tracking.registered_model
        )
        env = engine_env(EngineOptions.from_config(cfg.engine))
        self.judge = _actor(
            JudgeActor,
            "judge",
            cpus=cfg.judge.cpus,
            gpus=cfg.judge.gpus,
            concurrency=4,
            env=env if cfg.judge.backend == "vllm" else None,
        ).remote(cfg.judge, grading=cfg.grading)
        self.engines = [
            _actor(
                RolloutActor,
                f"engine-{index}",
                cpus=cfg.rollout.cpus_per_engine,
                gpus=cfg.rollout.gpus_per_engine,
                concurrency=64,
                env=env,
            ).remote(f"engine-{index}")
            for index in range(cfg.rollout.engines)
        ]
        self.publisher = make_publisher(self.tracker) if make_publisher else None
        self.controller = _actor(Controller, "controller", cpus=0, concurrency=64).remote(
            plain, str(folder), self.engines, self.judge, self.tracker, self.publisher
        )

    def end(self) -> None:
        """Kills them; killing one that is already dead is no error."""
        for actor in (self.controller, *self.engines, self.judge, self.publisher, self.tracker):
            if actor is not None:
                ray.kill(actor)


def _actor(
    cls: type, name: str, *, cpus: float, gpus: float = 0, concurrency: int = 1, env: dict[str, str] | None = None
) -> Any:
    options: dict[str, Any] = {"name": name, "num_cpus": cpus, "num_gpus": gpus}
    if concurrency > 1:
        options["max_concurrency"] = concurrency
    if env:
        options["runtime_env"] = {"env_vars": env}
    return ray.remote(cls).options(**options)


class Watch(threading.Thread):
    """Shows each step's line as it comes, and whom a stalled run waits for."""

    def __init__(self, controller: Any, cfg: RunConfig, show: Show) -> None:
        super().__init__(daemon=True, name="progress")
        self.controller, self.cfg, self.show = controller, cfg, show
        self.last, self.lost, self.stopping = -1, 0, threading.Event()

    def run(self) -> None:
        """Until `stop`; a poll that fails is counted, a stall is shown each `report_stall_s`."""
        told = 0.0
        while not self.stopping.wait(POLL_S):
            seen = self.poll()
            stalled = stall_line(seen["waits"], self.cfg.loop.report_stall_s) if seen else None
            if stalled and time.monotonic() - told > self.cfg.loop.report_stall_s:
                told = time.monotonic()
                self.show(stalled)

    def poll(self) -> dict | None:
        """Shows new lines; None (counted) when the controller does not answer."""
        try:
            seen = ray.get(self.controller.progress.remote(self.last), timeout=30)
        except (ray.exceptions.RayError, TimeoutError):
            self.lost += 1
            return None
        for step, line in seen["lines"]:
            self.last = max(self.last, step)
            self.show(line)
        return seen

    def stop(self) -> None:
        """Ends the thread after one last look."""
        self.stopping.set()
        self.join(timeout=35)
        self.poll()


def train(cfg: RunConfig, folder: Path, show: Show, make_publisher: Callable[[Any], Any] | None = None) -> dict:
    """Runs the loop to its end on the connected Ray cluster. Returns versions, ledger counts and publications.

    `folder` is the run's local folder, `show` takes lines for people, `make_publisher(tracker)` gives the publisher
    actor. UserError for what a user can mend, RunFailed for the rest; actors are ended either way.
    """
    from pipeline.learner import fit

    wait_for_room(cfg, show)
    actors = Actors(cfg, folder, make_publisher)
    status = "FAILED"
    watch = Watch(actors.controller, cfg, show)
    try:
        run_id = _start(cfg, actors, folder, show)
        watch.start()
        measure(cfg, actors.controller, "before", show)
        fit(cfg, "controller", ray.get_runtime_context().namespace, str(folder), str(folder / "train"))
        watch.stop()
        result = get(actors.controller.finish.remote(), cfg.loop.step_deadline_s, "the controller to finish")
        if result["stopped"]:
            raise (UserError if result["user_error"] else RunFailed)(result["stopped"])
        status = "FINISHED"
        measure(cfg, actors.controller, "after", show)
        report = keep_report(cfg, folder, actors.tracker, show)
        get(actors.tracker.log_curves.remote(str(cfg.run.name)), 120, "the tracker to draw the curves")
        publications = ray.get(actors.publisher.history.remote()) if actors.publisher else []
        return {**result, "mlflow_run_id": run_id, "publications": publications, "report": report}
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        watch.stopping.set()
        _close(actors, status)


def _start(cfg: RunConfig, actors: Actors, folder: Path, show: Show) -> str:
    show(f"starting {cfg.rollout.engines} rollout engines, the judge and the tracker")
    tags = {"config_digest": config_digest(cfg), "namespace": ray.get_runtime_context().namespace}
    tags |= {"start_digest": start_digest(cfg.model.path), **code_tags()}
    plain = cfg.model_dump(mode="json")
    run_id = get(
        actors.tracker.start.remote(cfg.run.name, plain, tags, None, cfg.run.resume), 90, "the tracker to start"
    )
    effective = get(actors.controller.begin.remote(), cfg.loop.start_deadline_s, "the rollout engines to start")
    show(f"engines ready; MLflow run {run_id}")
    get(actors.tracker.log_text.remote(effective, "engine_options.txt"), 60, "the tracker")
    judge, line = judge_identity(actors.judge, folder, cfg.loop.start_deadline_s)
    show(line)
    for name, value in judge.items():
        get(actors.tracker.set_tag.remote(f"judge.{name}", value), 60, "the tracker")
    return run_id


def _close(actors: Actors, status: str) -> None:
    try:
        ray.get(actors.tracker.finish.remote(status), timeout=30)
    except (ray.exceptions.RayError, TimeoutError) as error:
        logger.warning("the tracker could not mark the run %s: %s", status, error)
    actors.end()
