"""Train a model with DECS: `python -m jobs.train --config infra/presets/tiny.yaml [key=value ...]`.

With the same run.name an interrupted run goes on from its last checkpoint.
"""

import argparse
import json
import sys
from functools import partial
from typing import Any

from tqdm import tqdm

from jobs._bar import show_line
from jobs._cli import run_command
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from pipeline.config import RunConfig, UserError, check_model_folder


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Runs the training to its end; 0 when it got there."""
    cfg = named(cfg, args.config)
    check_model_folder(cfg.model.path)
    folder = run_folder(cfg)
    with held(folder), cluster(namespace=str(cfg.run.name)) as dashboard:
        _check_endpoint(cfg, dashboard)
        result = _train(cfg, folder, dashboard)
    (folder / "result.json").write_text(json.dumps(result, indent=2))
    print(f"run {cfg.run.name}: {result['steps']} steps, version {result['version']}, ledger {result['ledger']}")
    return 0


def _check_endpoint(cfg: RunConfig, dashboard: str | None) -> None:
    from serve import client

    if not cfg.publish.endpoint:
        return
    if not dashboard:
        raise UserError("publish.endpoint needs a cluster that serves a model; submit this job to one, or set it off")
    client.status(dashboard)


def _train(cfg: RunConfig, folder: Any, dashboard: str | None) -> dict:
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


if __name__ == "__main__":
    sys.exit(run_command("train", __doc__, main))
