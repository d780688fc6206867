"""Compare rewards with equal budgets: `python -m jobs.compare --preset compare --arms grpo,decs --seeds 3`.

Every arm starts from the same model, sees the same problems and samples the same number of traces; each is measured on
the held-out problems. With the same run.name finished arms are kept and the others are run.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from jobs import _compare_arms, _compare_report
from jobs._cli import describe_training, run_command, whole_number
from jobs._compare_arm import Place, kept_record, place, run_arm
from jobs._compare_arms import chosen_arms, known_arms
from jobs._compare_train import ArmFailed
from jobs._ray import cluster
from jobs._runs import held, named, run_folder
from pipeline.config import ROOT, RunConfig, UserError, check_model_folder, config_digest

SEEDS = "so many, from run.seed on (default: 3)"


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Runs what is not finished and reports; 1 when an arm failed or the budgets differ."""
    cfg = named(cfg, args.config)
    _compare_arms.check_comparable(cfg, args.arms)
    digest = _model_digest(check_model_folder(cfg.model.path))
    folder = run_folder(cfg)
    with held(folder):
        return _compare(cfg, args, folder, digest)


def _compare(cfg: RunConfig, args: argparse.Namespace, folder: Path, model_digest: str) -> int:
    from pipeline.tracking import Tracker, tracking_uri

    uri = tracking_uri(cfg)
    seeds = range(cfg.run.seed, cfg.run.seed + args.seeds)
    places = [place(cfg, arm, seed, folder, model_digest, uri) for arm in (None, *args.arms) for seed in seeds]
    records = {at.name: record for at in places if (record := kept_record(at))}
    print(f"comparison {cfg.run.name} in {folder}: {len(places)} measurements, {len(records)} done before", flush=True)
    tracker = Tracker.from_config(cfg)
    tracker.start(str(cfg.run.name), cfg.model_dump(mode="json"), {"config_digest": config_digest(cfg)}, None, True)
    status = "FAILED"
    try:
        failures = _run_rest(cfg, [at for at in places if at.name not in records], records, tracker)
        found = _compare_report.build(cfg, args.arms, list(seeds), model_digest, places, records, failures)
        _compare_report.write(found, folder, tracker, args.write_docs)
        complaints = _compare_report.complaints(found)
        for complaint in complaints:
            print(f"FAILED: {complaint}", file=sys.stderr)
        status = "FAILED" if complaints else "FINISHED"
        return 1 if complaints else 0
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        tracker.finish(status)


def _run_rest(cfg: RunConfig, rest: list[Place], records: dict[str, dict], tracker: Any) -> list[dict]:
    """Runs the arms that are left, one after the other; returns those that failed, with the reason."""
    failures: list[dict] = []
    if not rest:
        return failures
    import ray

    with cluster(namespace=str(cfg.run.name)), tqdm(total=len(rest), unit="arm", disable=None) as bar:
        engine = _Engine(cfg)
        address = ray.get_runtime_context().gcs_address
        began = time.monotonic()
        for number, at in enumerate(rest, 1):
            try:
                records[at.name] = run_arm(at, engine, tracker, address, partial(_show_step, bar, at))
                told = _compare_report.arm_line(records[at.name])
            except (ArmFailed, UserError, RuntimeError, ray.exceptions.RayError) as error:
                engine.end()  # it may be what failed; the next arm gets a new one
                failures.append({"arm": at.arm.name if at.arm else "start", "seed": at.seed, "why": str(error)})
                told = f"FAILED: {error}"
            left = (time.monotonic() - began) / number * (len(rest) - number) / 60
            bar.write(f"{number}/{len(rest)} {at.name}: {told}; about {left:.0f} min left")
            sys.stdout.flush()
            bar.update()
        engine.end()
    return failures


def _show_step(bar: tqdm, at: Place, line: str) -> None:
    bar.set_postfix_str(f"{at.name} {line.split('  ')[0]}")


class _Engine:
    """The engine that measures all arms: started when first needed, and anew after it was ended."""

    def __init__(self, cfg: RunConfig) -> None:
        self.cfg, self.engine = cfg, None

    def _running(self) -> Any:
        from pipeline.loop.evaluate import EvaluationEngine

        if self.engine is None:
            self.engine = EvaluationEngine(self.cfg, self.cfg.model.path, cpus=0)  # it rests while an arm trains
        return self.engine

    def swap(self, folder: str, version: int, digest: str) -> None:
        """See `EvaluationEngine.swap`."""
        self._running().swap(folder, version, digest)

    def sample(self, *args: Any) -> list:
        """See `EvaluationEngine.sample`."""
        return self._running().sample(*args)

    def end(self) -> None:
        """Ends the engine's process."""
        if self.engine is not None:
            self.engine.end()
        self.engine = None


def _model_digest(folder: Path) -> str:
    """The weights' digest, from the folder's manifest or, without one, from its files."""
    import hashlib

    from pipeline.weights import MANIFEST_NAME, read_manifest

    if (folder / MANIFEST_NAME).is_file():
        return read_manifest(folder).digest
    found = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]):
        with file.open("rb") as handle:
            found.update(hashlib.file_digest(handle, "sha256").digest())
    return found.hexdigest()


def _preset(name: str) -> str:
    return str(ROOT / "infra" / "presets" / f"{name}.yaml")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(config="compare")  # argparse gives a default to `_preset`, as it does what follows --preset
    parser.add_argument("--preset", dest="config", type=_preset, metavar="NAME", help="short for --config of a preset")
    known = f"of: all (default; -NAME leaves one out), {', '.join(known_arms())}"
    parser.add_argument("--arms", type=chosen_arms, default=chosen_arms("all"), metavar="A,B", help=known)
    parser.add_argument("--seeds", type=whole_number("--seeds", most=1000), default=3, metavar="N", help=SEEDS)
    parser.add_argument("--write-docs", metavar="FILE", help="also write a Markdown page, such as docs/results.md")


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    _compare_arms.check_comparable(cfg, args.arms)
    names = ", ".join(arm.name for arm in args.arms)
    traces = cfg.run.steps * cfg.rollout.prompts_per_step * cfg.rollout.group_size
    return (
        f"{len(args.arms)} arms ({names}), {args.seeds} seeds each, in turn, {traces:,} traces each; "
        f"reward and curriculum are the arm's:\n{describe_training(cfg)}"
    )


if __name__ == "__main__":
    sys.exit(run_command("compare", __doc__, main, _arguments, _plan))
