"""The learner's checkpoints: DeepSpeed's files, the controller's state, and a small JSON that says what they are.

The JSON is read before anything is built, so that a checkpoint that does not fit is refused before training, and
never loaded in part: fresh moments that pass for restored ones are the fault to avoid.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import UserError

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

META = "learner.json"
TAG = "learner"
UNIVERSAL_TAG = "learner_universal"
FORMAT = 1
CONVERSION_DEADLINE_S = 1800


@dataclass(frozen=True)
class CheckpointMeta:
    """`step` the last step trained (from 0), `version` of its weights (step + 1) and their `digest` in
    `serving_dtype`; `ranks`, `zero_stage` and `dtype` the layout of the optimiser state."""

    step: int
    version: int
    digest: str
    serving_dtype: str
    ranks: int
    zero_stage: int
    dtype: str


def save(engine: "DeepSpeedEngine", folder: Path, meta: CheckpointMeta, controller_state: Any) -> None:
    """Write this rank's files into `folder`; rank 0 adds the JSON, last. Collective.

    Each rank may have a folder of its own: merged, they are the whole checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client_state = {"controller_state": controller_state, "learner_meta": asdict(meta)}
    engine.save_checkpoint(str(folder), tag=TAG, client_state=client_state)
    if engine.global_rank == 0:
        (folder / META).write_text(json.dumps({"format": FORMAT, **asdict(meta)}, indent=1), encoding="utf-8")


def read_meta(folder: Path) -> CheckpointMeta:
    """The checkpoint's JSON. Raises `UserError` where it is missing or of another format."""
    path = folder / META
    if not path.is_file():
        raise UserError(f"{folder} holds no {META}: it is not a whole learner checkpoint; resume from an earlier one")
    raw = json.loads(path.read_text(encoding="utf-8"))
    if raw.pop("format", None) != FORMAT:
        raise UserError(f"{path} is not of checkpoint format {FORMAT}; resume with the release that wrote it")
    return CheckpointMeta(**raw)


def needs_conversion(meta: CheckpointMeta, ranks: int, zero_stage: int, dtype: str) -> bool:
    """Whether the optimiser's shards must be laid out anew for another number of ranks.

    Without ZeRO every rank holds the whole state, so any number may load it. Raises `UserError` for another stage
    or type, which no conversion bridges.
    """
    for name, saved, now in (("learner.zero_stage", meta.zero_stage, zero_stage), ("model.dtype", meta.dtype, dtype)):
        if saved != now:
            raise UserError(
                f"the checkpoint of step {meta.step} was saved with {name}={saved}, this run has {now}; "
                f"resume with {name}={saved}, or start a new run from its exported weights"
            )
    return meta.ranks != ranks and zero_stage > 0


def convert(folder: Path, target: Path, meta: CheckpointMeta, ranks: int) -> None:
    """Convert to DeepSpeed's universal form, which any number of ranks can load, in `target`.

    Call it on one rank of each machine. Raises `UserError`, naming both numbers, where the conversion fails.
    """
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
    command += ["--input_folder", str(folder / TAG), "--output_folder", str(target / UNIVERSAL_TAG)]
    command += ["--num_extract_workers", "1", "--num_merge_workers", "1", "--inject_missing_state"]
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=CONVERSION_DEADLINE_S, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"the checkpoint of step {meta.step} was saved by {meta.ranks} ranks and this run has {ranks}, and its "
            f"conversion failed ({last}); resume with learner.ranks={meta.ranks}"
        )


def load(engine: "DeepSpeedEngine", folder: Path, tag: str = TAG) -> Any:
    """Restore weights, optimiser state and counters; returns the controller's state. Collective.

    Raises `RuntimeError` where DeepSpeed loaded nothing.
    """
    loaded, client_state = engine.load_checkpoint(str(folder), tag=tag)
    if loaded is None:
        raise RuntimeError(f"DeepSpeed found no checkpoint {tag!r} in {folder}; nothing was restored")
    return client_state["controller_state"]
