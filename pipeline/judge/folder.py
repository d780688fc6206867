"""The folder a judge is loaded from, and its identity."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.config import UserError
from pipeline.weights import MANIFEST_NAME, SnapshotError, tensors_digest, verify
from pipeline.weights.tensors import describe, read_config, read_tensors, weight_files


@dataclass(frozen=True)
class JudgeFolder:
    """A judge's folder, its weights' digest (as in a manifest) and, for one trained here, the manifest's version."""

    path: Path
    digest: str
    version: int | None
    positions: int  # longest input the model has positions for; 0: not stated

    def describe(self) -> dict[str, str]:
        """For logs and the run's record."""
        version = {} if self.version is None else {"version": str(self.version)}
        return {"path": str(self.path), "digest": self.digest, **version}

    def check_length(self, max_tokens: int) -> None:
        """UserError where the model has too few positions for a prompt and the verdict."""
        if self.positions and max_tokens >= self.positions:
            raise UserError(
                f"judge.max_tokens is {max_tokens} but the judge in {self.path} has {self.positions} positions, one of "
                "them for the verdict; lower the first"
            )


def open_judge(path: Path, digest: str | None) -> JudgeFolder:
    """The folder after reading every tensor once. UserError where it is no judge, is damaged, or has another digest.

    A folder with a manifest must be what the manifest states. One without (a public model) has the digest that a
    manifest of its safetensors would have.
    """
    if not path.is_dir():
        raise UserError(
            f"judge.path: no judge at {path}; train one (python -m jobs.train_judge --help) or give the folder of a "
            "Hugging Face model"
        )
    try:
        if (path / MANIFEST_NAME).is_file():
            manifest = verify(path, digest)
            found, version = manifest.digest, manifest.version
        else:
            found, version = _digest(path), None
            if digest is not None and found != digest:
                raise SnapshotError(f"{path} has digest {found[:12]}, expected {digest[:12]}")
        config = read_config(path)
    except SnapshotError as error:
        raise UserError(f"judge.path: {error}") from error
    nested = config.get("text_config")
    stated = (nested if isinstance(nested, dict) else config).get("max_position_embeddings", 0)
    return JudgeFolder(path, found, version, stated if isinstance(stated, int) else 0)


def _digest(path: Path) -> str:
    files = weight_files(path)
    if not files:
        raise SnapshotError(f"{path} has no safetensors")
    return tensors_digest({name: describe(tensor) for file in files for name, tensor in read_tensors(file)})
