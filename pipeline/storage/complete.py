"""The manifest that makes a stored folder complete."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.storage.errors import IncompleteFolder, StorageError
from pipeline.storage.keys import MANIFEST, validate_writable

FORMAT = 1


@dataclass(frozen=True)
class StoredFile:
    """`size` in bytes, `sha256` in hex."""

    size: int
    sha256: str


@dataclass(frozen=True)
class FolderManifest:
    """Every file of a folder by its relative name. Equal content gives equal bytes."""

    files: Mapping[str, StoredFile]

    def to_bytes(self) -> bytes:
        """JSON with a checksum over the list of files."""
        files = {name: [file.size, file.sha256] for name, file in sorted(self.files.items())}
        return json.dumps({"format": FORMAT, "sha256": _digest(files), "files": files}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "FolderManifest":
        """Read back `to_bytes`; IncompleteFolder if it is cut, damaged or names files outside the folder."""
        try:
            raw = json.loads(data)
            files = {validate_writable(name): StoredFile(size, sha) for name, (size, sha) in raw["files"].items()}
            whole = raw["format"] == FORMAT and raw["sha256"] == _digest(raw["files"])
        except (ValueError, KeyError, TypeError, AttributeError, StorageError) as error:
            raise IncompleteFolder(f"{where}/{MANIFEST} cannot be read ({error}); the folder is unusable") from error
        if not whole or not files:
            raise IncompleteFolder(f"{where}/{MANIFEST} does not fit its own checksum; the folder is unusable")
        return cls(files)

    @classmethod
    def of(cls, local: Path) -> "FolderManifest":
        """Of a local folder, by reading every file. Links to files count as files; empty folders are not kept."""
        return cls({name: StoredFile(path.stat().st_size, file_digest(path)) for name, path in _walk(local)})

    def check(self, name: str, path: Path, where: str) -> None:
        """IncompleteFolder if the file at `path` is not the one stated as `name`."""
        stated = self.files[name]
        size = path.stat().st_size
        if size != stated.size:
            raise IncompleteFolder(f"{where}/{name} has {size} bytes, its manifest states {stated.size}")
        if file_digest(path) != stated.sha256:
            raise IncompleteFolder(f"{where}/{name} is damaged: its sha256 is not the one in the manifest")


def stamps(local: Path) -> dict[str, tuple[int, int]]:
    """name -> (size, time of last change): tells whether a folder changed while it was being stored."""
    return {name: (path.stat().st_size, path.stat().st_mtime_ns) for name, path in _walk(local)}


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(local: Path) -> Iterator[tuple[str, Path]]:
    if not local.is_dir():
        raise StorageError(f"{local} is not a folder")
    found = False
    for root, folders, files in os.walk(local):
        for folder in folders:
            if (Path(root) / folder).is_symlink():
                raise StorageError(f"{Path(root) / folder} is a link to a folder; store a real one")
        for name in sorted(files):
            found = True
            path = Path(root) / name
            yield validate_writable(path.relative_to(local).as_posix()), path
    if not found:
        raise StorageError(f"{local} holds no files")


def _digest(files: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
