"""The problems that a run's weights were trained on, from the ledger in its checkpoints."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import UserError
from pipeline.learner.checkpoint import META, TAG, read_meta
from pipeline.loop.ledger import Ledger, State

logger = logging.getLogger(__name__)

UNKNOWN_SOURCE = "unknown"


@dataclass(frozen=True)
class Trained:
    """Distinct problem ids in the order they were first trained on, and how many groups of replies they gave.
    `up_to` is the last step the ledger covers: less than asked for where checkpoints are older than the version."""

    ids: tuple[str, ...]
    groups: int
    up_to: int
    checkpoint: str


def trained_until(ledger: Ledger, step: int) -> list[str]:
    """Problem ids of all groups trained on in steps 0 to `step`, by step."""
    done = [entry for entry in ledger.entries.values() if entry.state is State.TRAINED and int(entry.detail) <= step]
    return [entry.problem_id for entry in sorted(done, key=lambda entry: int(entry.detail))]


def by_source(ids: Sequence[str], sources: Mapping[str, str]) -> dict[str, int]:
    """Problems by source; ids that the data no longer has count as `unknown`."""
    return dict(Counter(sources.get(one, UNKNOWN_SOURCE) for one in ids).most_common())


def find_checkpoint(run_folder: Path, step: int) -> tuple[Path, int] | None:
    """(folder, step) of the oldest checkpoint that covers `step`, else of the newest one; None where there is none."""
    found = []
    for path in run_folder.glob(f"train/**/{META}"):
        try:
            found.append((read_meta(path.parent).step, path.parent))
        except UserError as error:  # of another format; another checkpoint may do
            logger.warning("passed over: %s", error)
    if not found:
        return None
    covering = [pair for pair in found if pair[0] >= step]
    at, folder = min(covering) if covering else max(found)
    return folder, at


def read_ledger(checkpoint: Path) -> Ledger:
    """The ledger inside a checkpoint. UserError where it has none that can be read."""
    import torch

    for path in sorted((checkpoint / TAG).glob("*model_states.pt")):
        kept = torch.load(path, map_location="cpu", weights_only=True)
        if state := kept.get("controller_state"):
            return Ledger.from_state(state["ledger"])
    raise UserError(f"{checkpoint} holds no ledger")


def trained_on(run_folder: Path, step: int) -> Trained | str:
    """The problems behind the weights after `step`; else one sentence that says why they are unknown."""
    if not run_folder.is_dir():
        return f"the run's folder {run_folder} is not on this machine"
    checkpoint = find_checkpoint(run_folder, step)
    if checkpoint is None:
        return f"{run_folder} has no checkpoint, whose ledger lists them"
    folder, at = checkpoint
    every = trained_until(read_ledger(folder), step)
    return Trained(tuple(dict.fromkeys(every)), len(every), min(at, step), str(folder))
