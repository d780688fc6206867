"""The main job on this machine: `make demo`.

Starts the services, serves the tiny overthinking model, measures it, trains it with DECS while the endpoint swaps to
each published version under load, measures it again, and reports. The services stay up; `make down` ends them.
"""

import argparse
import json
import sys
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jobs import _demo_report, _measure, services
from jobs._bar import show_line
from jobs._cli import describe_training, run_command
from jobs._submit import follow, submit
from jobs._traffic import Trickle
from pipeline.config import RunConfig, UserError, check_model_folder, resolve_path
from pipeline.evaluation import Summary
from serve import client
from serve.policy import Policy

PRESET = "infra/presets/tiny.yaml"
RUNS = "runs"


class Clock:
    """Seconds by phase, and a headline for each as it begins."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.phase, self.since = "", time.monotonic()

    def begin(self, phase: str, headline: str) -> None:
        """Ends the phase before."""
        self.end()
        self.phase, self.since = phase, time.monotonic()
        print(f"\n== {headline}", flush=True)

    def end(self) -> None:
        """Notes the running phase."""
        if self.phase:
            self.seconds[self.phase] = round(time.monotonic() - self.since, 1)
        self.phase = ""


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Runs the demo; 1 when a request failed or a version did not reach the endpoint.

    Interrupted, it ends the services, unless they were there before.
    """
    home = Path(args.folder).resolve() / "services"
    found = any(alive for _, alive in services.status(home).values())
    try:
        return _demo(cfg, args)
    except KeyboardInterrupt:
        if not found:
            print("\nending the services", flush=True)
            services.down(home)
        raise


def _demo(cfg: RunConfig, args: argparse.Namespace) -> int:
    from pipeline.loop.assemble import load_split, load_tokenizer

    folder, clock = Path(args.folder).resolve(), Clock()
    model = check_model_folder(cfg.model.path)
    problems, tokenizer = load_split(cfg, "held_out"), load_tokenizer(str(model))
    clock.begin("services", "Starting Ray, MLflow and the storage folder")
    running = services.up(folder / "services")
    urls = {name: url for service in running.values() for name, url in service.urls.items()}
    for name, url in urls.items():
        print(f"   {name:10} {url}")
    print(f"   {'storage':10} {folder}", flush=True)

    clock.begin("deploy", f"Deploying {cfg.model.path} to Ray Serve")
    endpoint = client.deploy(urls["dashboard"], cfg, str(model), _first_policy(model))
    urls["endpoint"] = f"{endpoint.url}/v1"
    print(f"   endpoint   {urls['endpoint']}  (model {endpoint.model_id})", flush=True)

    clock.begin("before", f"Measuring {len(problems)} held-out problems through the endpoint")
    before = _measured(cfg, tokenizer, endpoint, problems)
    name = f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    clock.begin("train", f"Training: ray job {name}, {cfg.run.steps} steps; requests go on meanwhile")
    trickle = Trickle(cfg, endpoint.url, endpoint.model_id, problems)
    trickle.start()
    try:
        succeeded = _train(cfg, args, urls["dashboard"], folder, name)
    finally:
        trickle.stop()
    if not succeeded:
        raise UserError(
            f"the training job {name} failed; its log is above and at {urls['dashboard']} (where Ray speaks of memory, "
            "end other programs first); the services are still up: `make down` ends them"
        )

    clock.begin("after", "Measuring the same problems again")
    after = _measured(cfg, tokenizer, endpoint, problems)
    clock.end()
    result = json.loads((folder / name / "result.json").read_text())
    report = _demo_report.build(cfg, before, after, trickle, result, clock.seconds, urls, tokenizer)
    named = cfg.model_copy(update={"run": cfg.run.model_copy(update={"name": name})})
    run_id = result["mlflow_run_id"]
    pages = _demo_report.write(report, before, after, tokenizer, folder / "demo", urls["mlflow"], run_id, named)
    print(_demo_report.text(report, before, after, tokenizer, pages), flush=True)
    complaints = _demo_report.complaints(report)
    for complaint in complaints:
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


def _first_policy(model: Path) -> Policy:
    from pipeline.weights import read_manifest

    return Policy(0, str(model), read_manifest(model).digest)


def _measured(cfg: RunConfig, tokenizer: Any, endpoint: client.Endpoint, problems: list) -> _measure.Measured:
    with tqdm(total=len(problems) * cfg.evaluation.samples, unit="reply", disable=None) as bar:
        measured = _measure.through_endpoint(
            cfg, tokenizer, endpoint.url, endpoint.model_id, problems, bar.update, cfg.run.seed
        )
    columns: dict[str, Summary] = {"all": measured.summary, **measured.by_source()}
    print(_measure.table(columns), flush=True)
    return measured


def _train(cfg: RunConfig, args: argparse.Namespace, dashboard: str, folder: Path, name: str) -> bool:
    fixed = [f"run.name={name}", f"storage.uri={folder}", "publish.endpoint=true"]
    overrides = [*args.overrides, *fixed, "run.report_problems=0"]  # measured here, through the endpoint
    job = submit(dashboard, ["python", "-m", "jobs.train", "--config", args.config, *overrides], name)
    with tqdm(total=cfg.run.steps, unit="step", disable=None) as bar:
        return follow(job, partial(show_line, bar))


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(config=str(resolve_path(PRESET)))
    parser.add_argument("--folder", default=RUNS, help="where services, runs and the report are kept (default: runs)")


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    describe_training(cfg)  # for what it refuses
    return f"Ray, MLflow and a storage folder; an endpoint with {cfg.model.path}; a job of {cfg.run.steps} steps"


if __name__ == "__main__":
    sys.exit(run_command("demo", __doc__, main, _arguments, _plan))
