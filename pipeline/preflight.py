"""What a config can be refused for before anything starts; no torch, Ray or vLLM."""

from pathlib import Path

from pipeline.config import Resources, RunConfig, UserError, check_resources, resolve_path
from pipeline.config.schema import Judge
from pipeline.curriculum import kappa_rule
from pipeline.problems import check_sources
from pipeline.rewards import build, try_out
from pipeline.storage import check_storage
from pipeline.tracking.connection import check_tracking
from pipeline.weights import MANIFEST_NAME, SnapshotError, read_manifest


def check_places(cfg: RunConfig) -> None:
    """UserError where storage or tracking are no places at all. Nothing is contacted."""
    check_storage(cfg.storage)
    check_tracking(cfg)


def check_training(cfg: RunConfig) -> Resources:
    """The CPUs and GPUs the run will ask for. UserError where problems, reward, judge, curriculum or placement cannot
    work. Problems in files are read, others neither made nor fetched."""
    check_sources([*cfg.problems.train, *cfg.problems.held_out])
    check_judge(cfg.judge)
    try_out(build(cfg.reward), cfg.rollout.group_size, cfg.rollout.max_new_tokens)
    kappa_rule(cfg.curriculum)
    return check_resources(cfg)


def check_judge(judge: Judge) -> None:
    """UserError where a learned judge's folder is none, or its manifest has other weights than judge.digest. Its
    tensors are read, and compared with the manifest, when the judge starts."""
    if judge.name == "exact":
        return
    folder = resolve_path(judge.path)
    if not (folder / "config.json").is_file():
        raise UserError(
            f"judge.path: no judge at {folder}; train one (python -m jobs.train_judge --help), give the folder of a "
            "Hugging Face model, or set judge.name=exact"
        )
    if judge.digest is not None and (found := _stated_digest(folder)) not in (None, judge.digest):
        raise UserError(
            f"judge.digest is {judge.digest[:12]} but the judge in {folder} has {found[:12]}; correct one of them"
        )


def _stated_digest(folder: Path) -> str | None:
    if not (folder / MANIFEST_NAME).is_file():
        return None
    try:
        return read_manifest(folder).digest
    except SnapshotError as error:
        raise UserError(f"judge.path: {error}") from None
