"""What a snapshot of the weights is: every tensor and file with its digest."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.config import UserError

MANIFEST_NAME = "manifest.json"
WEIGHTS_NAME = "model.safetensors"
FORMAT = 1


class SnapshotError(UserError):
    """A snapshot that must not be used; names the tensor or file at fault."""


@dataclass(frozen=True)
class TensorEntry:
    """`dtype` by torch's name ("bfloat16"), `sha256` (hex) over the values in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The identity of a snapshot. `parent` is the version it was trained from (None: the first), `step` the optimiser
    step that made it, `tied` maps a tensor left out of the file to the one whose values it shares, `files` maps every
    other file (configuration, tokenizer) to its sha256."""

    version: int
    parent: int | None
    step: int
    config_digest: str
    tensors: Mapping[str, TensorEntry]
    tied: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        """sha256 (hex) over all tensor entries. Versions are not part of it: equal weights have equal digests."""
        return tensors_digest(self.tensors)

    def to_json(self) -> str:
        """JSON text, sorted and with the digest, so that a damaged manifest is found."""
        return json.dumps({"format": FORMAT, "digest": self.digest, **asdict(self)}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, where: str = MANIFEST_NAME) -> "Manifest":
        """Read back `to_json`; SnapshotError that names `where` if it is not one or its digest does not fit."""
        try:
            raw = json.loads(text)
            entries = {n: TensorEntry(e["dtype"], tuple(e["shape"]), e["sha256"]) for n, e in raw["tensors"].items()}
            kept = {key: raw[key] for key in ("version", "parent", "step", "config_digest")}
            manifest = cls(**kept, tensors=entries, tied=dict(raw["tied"]), files=dict(raw["files"]))
            stated = raw["digest"]
            known = raw["format"] == FORMAT
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SnapshotError(f"{where} is not a snapshot manifest ({type(error).__name__}: {error})") from error
        if not known:
            raise SnapshotError(f"{where} has format {raw['format']}, this version reads {FORMAT}")
        if stated != manifest.digest:
            raise SnapshotError(f"{where} states digest {stated[:12]} but its entries give {manifest.digest[:12]}")
        return manifest


@dataclass(frozen=True)
class Snapshot:
    """Weights with a version: `uri` is the folder or storage address that holds them."""

    version: int
    uri: str
    manifest: Manifest


def tensors_digest(tensors: Mapping[str, TensorEntry]) -> str:
    """sha256 (hex) over name, dtype, shape and digest of each tensor, sorted by name."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        total.update(json.dumps([name, entry.dtype, list(entry.shape), entry.sha256]).encode() + b"\n")
    return total.hexdigest()


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a snapshot folder, unverified against the other files; SnapshotError if there is none."""
    path = Path(folder) / MANIFEST_NAME
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SnapshotError(f"{folder} is no snapshot: {MANIFEST_NAME} is missing") from error
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{path} is not a snapshot manifest (not text)") from error
