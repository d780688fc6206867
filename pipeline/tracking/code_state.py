"""Which code made something: the commit, and whether files differed from it. Kept as tags of runs and versions."""

import os
import subprocess
from pathlib import Path

from pipeline.config import ROOT

COMMIT = "mlflow.source.git.commit"  # the key under which MLflow's own page shows it
DIRTY = "code.dirty"  # true: files of the code differed from the commit
WHERE = "code.root"  # where the code lay; paths in the run's config.yaml start with it
ENV = "PIPELINE_CODE_STATE"  # `<commit>` or `<commit>+dirty`, for jobs that are sent the code without its repository
UNKNOWN = "unknown"
DEADLINE_S = 20.0
PARTS = ("pipeline", "jobs", "serve", "infra")


def code_state(root: Path = ROOT) -> str:
    """`<commit>`, `<commit>+dirty` where tracked or new files of the code differ from it, or `unknown`.

    The variable `PIPELINE_CODE_STATE` goes before what git says.
    """
    if told := os.environ.get(ENV):
        return told
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", *PARTS)
    if not commit or changed is None:
        return UNKNOWN
    return f"{commit}+dirty" if changed else commit


def code_tags(root: Path = ROOT) -> dict[str, str]:
    """The tags that keep it. Without a repository the commit is `unknown`, and so is whether it was changed."""
    commit, _, changed = code_state(root).partition("+")
    dirty = UNKNOWN if commit == UNKNOWN else str(changed == "dirty").lower()
    return {COMMIT: commit, DIRTY: dirty, WHERE: str(root)}


def _git(root: Path, *words: str) -> str | None:
    """git's answer without its last line break; None where git is not there, or `root` is not the repository's top."""
    if not (root / ".git").exists():  # a copy of the code inside another repository is not that one's commit
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
