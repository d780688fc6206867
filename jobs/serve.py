"""Deploy a model as an OpenAI-compatible endpoint on a running cluster: `python -m jobs.serve --config ...`."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jobs._cli import run_command
from jobs._runs import results_root
from jobs._services import read_state
from jobs.services import FOLDER
from pipeline.config import RunConfig, UserError, check_model_folder, config_digest
from pipeline.weights import MANIFEST_NAME, Snapshot, read_manifest
from serve.client import SwapTimeout, deploy
from serve.policy import Policy, fingerprint


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Deploys `model.path` and prints the address once every replica has confirmed its weights; 1 when none does."""
    dashboard = args.dashboard or local_dashboard(args.services)
    folder = check_model_folder(cfg.model.path)
    snapshot = as_snapshot(folder, results_folder(cfg), cfg)
    policy = Policy(snapshot.version, snapshot.uri, snapshot.manifest.digest, cfg.serve.swap_mode)
    try:
        endpoint = deploy(dashboard, cfg.serve, snapshot.uri, policy.as_config(), engine_cfg=cfg.engine)
    except (SwapTimeout, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    mark = fingerprint(policy.version, policy.digest)
    print(f"endpoint {endpoint.url}/v1  model {endpoint.model_id}  weights {mark}  replicas {len(endpoint.replicas)}")
    return 0


def local_dashboard(services: str) -> str:
    """The dashboard of the local services. UserError when they are not up."""
    state = read_state(Path(services))
    if "ray" not in state:
        raise UserError(
            f"no Ray head is noted in {services}/services.json: start one with `python -m jobs.services up`, or name a "
            "cluster with --dashboard http://HOST:8265"
        )
    return state["ray"].urls["dashboard"]


def results_folder(cfg: RunConfig) -> Path:
    """Where a snapshot of a plain model folder is kept: beside the run's results, here when those are remote."""
    return results_root(cfg) / "endpoint"


def as_snapshot(folder: Path, home: Path, cfg: RunConfig) -> Snapshot:
    """`folder` itself when it is a snapshot; else version 0 written under `home`, so that these weights too have an
    identity that replicas can confirm and return to. Named by its digest: the same model is written once."""
    if (folder / MANIFEST_NAME).is_file():
        manifest = read_manifest(folder)
        return Snapshot(manifest.version, str(folder), manifest)
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".base-", dir=home))
    try:
        written = _write_base(folder, scratch / "base", cfg)
        target = home / f"base-{written.manifest.digest[:12]}"
        if not target.exists():
            (scratch / "base").rename(target)
        return Snapshot(0, str(target), read_manifest(target))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_base(folder: Path, target: Path, cfg: RunConfig) -> Snapshot:
    from pipeline.weights import read_tensors, write_snapshot  # torch is needed from here on only

    tensors = {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in read_tensors(file)}
    if not tensors:
        raise UserError(f"model.path: {folder} has no *.safetensors; save the model in that format first")
    return write_snapshot(
        target,
        tensors,
        version=0,
        step=0,
        parent=None,
        config_digest=config_digest(cfg),
        serving_dtype=cfg.engine.dtype,
        model_dir=folder,
    )


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """What the command would start, one line each."""
    port = cfg.serve.port or "a free port"
    return "\n".join(
        [
            f"{cfg.serve.replicas} replica(s) of {cfg.model.path} as '{cfg.serve.model_id}', "
            f"{cfg.serve.cpus_per_replica:g} CPU each, on {cfg.serve.host}, {port}",
            f"swaps in mode {cfg.serve.swap_mode}, draining at most {cfg.serve.drain_deadline_s:g} s",
        ]
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dashboard", metavar="URL", help="the cluster's dashboard (default: the local services)")
    parser.add_argument("--services", metavar="FOLDER", default=FOLDER, help="folder of `jobs.services`")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("serve", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
