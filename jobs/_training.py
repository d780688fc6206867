"""One training run, from a config to its result: what `jobs.train` and `pipeline.DECSTrainer` share."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jobs._bar import show_line
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError, check_model_folder
from pipeline.preflight import check_training


def run_training(cfg: RunConfig, config_file: str | None) -> dict[str, Any]:
    """Trains to the end and returns the result, which is also in result.json of the run's folder. A run without a name
    gets one from `config_file` and the time. UserError for what a user can mend."""
    cfg = named(cfg, config_file)
    check_training(cfg)
    check_model_folder(cfg.model.path)
    folder = run_folder(cfg)
    with held(folder), cluster(namespace=str(cfg.run.name)) as dashboard:
        _check_endpoint(cfg, dashboard)
        result = {"name": cfg.run.name, "folder": str(folder), **_train(cfg, folder, dashboard)}
    (folder / "result.json").write_text(json.dumps(result, indent=2))
    return result


def _check_endpoint(cfg: RunConfig, dashboard: str | None) -> None:
    from serve import client

    if not cfg.publish.endpoint:
        return
    if not dashboard:
        raise UserError("publish.endpoint needs a cluster that serves a model; submit this job to one, or set it off")
    client.status(dashboard)


def _train(cfg: RunConfig, folder: Path, dashboard: str | None) -> dict[str, Any]:
    import ray

    from jobs._publish import Publisher
    from pipeline.loop import train

    endpoint = dashboard if cfg.publish.endpoint else None

    def publisher(tracker: Any) -> Any:
        actor = ray.remote(Publisher).options(name="publisher", num_cpus=0, max_concurrency=2)
        return actor.remote(cfg.model_dump(mode="json"), tracker, endpoint)

    with tqdm(total=cfg.run.steps, unit="step", disable=None) as bar:
        show = partial(show_line, bar)
        show(f"run {cfg.run.name} in {folder}")
        return train(cfg, folder, show, publisher)
