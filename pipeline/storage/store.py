"""What storage offers, and the part that is the same for every back end."""

import shutil
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from pipeline.storage.complete import FolderManifest, stamps
from pipeline.storage.errors import IncompleteFolder, KeyMissing, StorageError, StorageUnavailable
from pipeline.storage.keys import MANIFEST, POINTER, validate_key, validate_writable

Names = list[str]  # inside the classes `list` is a method


class Store(Protocol):
    """Bytes and folders under keys. Every method may raise StorageError, or StorageUnavailable after its retries."""

    def put_folder(self, local: str | Path, key: str, overwrite: bool = False) -> None: ...

    def fetch_folder(self, key: str, local: str | Path) -> Path: ...

    def put_bytes(self, key: str, data: bytes) -> None: ...

    def get_bytes(self, key: str) -> bytes: ...

    def exists(self, key: str) -> bool: ...

    def list(self, prefix: str = "") -> Names: ...

    def is_complete(self, key: str) -> bool: ...

    def folders(self, key: str) -> Names: ...

    def set_latest(self, key: str, name: str) -> None: ...

    def latest(self, key: str) -> str | None: ...

    def uri(self, key: str) -> str: ...


class FolderStore(ABC):
    """Complete folders and the `latest` pointer, on top of single objects.

    A folder is complete when its manifest is there and every file has the stated size. The manifest is written
    after all files are confirmed, so an upload that died is never taken for a folder.
    """

    @abstractmethod
    def _write(self, key: str, data: bytes) -> None:
        """Store bytes; readers see the old or the new ones, never a part."""

    @abstractmethod
    def _upload(self, local: Path, key: str) -> None:
        """Store a local file."""

    @abstractmethod
    def _download(self, key: str, local: Path) -> None:
        """Write a stored object to a local file; KeyMissing if there is none."""

    @abstractmethod
    def _delete(self, key: str) -> None:
        """Remove an object; nothing happens if it is absent."""

    @abstractmethod
    def sizes(self, prefix: str = "") -> dict[str, int]:
        """key -> bytes of every object under `prefix` (a folder-like key; empty: everything)."""

    @abstractmethod
    def get_bytes(self, key: str) -> bytes:
        """The bytes under `key`; KeyMissing if there are none."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether an object (not a folder) is stored under `key`."""

    @abstractmethod
    def uri(self, key: str) -> str:
        """Address of `key` for people and other programs."""

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, replacing what was there at once."""
        self._write(validate_writable(key), data)

    def list(self, prefix: str = "") -> Names:
        """All keys under `prefix`, sorted."""
        return sorted(self.sizes(prefix))

    def put_folder(self, local: str | Path, key: str, overwrite: bool = False) -> None:
        """Store a local folder under `key`: files first, then, once their sizes are confirmed, the manifest.

        Storing equal content again does nothing. Other content under the key of a complete folder is a
        StorageError, or with `overwrite` replaces it (the folder is incomplete meanwhile).
        """
        local = Path(local)
        before = stamps(local)
        manifest = FolderManifest.of(local)
        if self._already(key, manifest, overwrite):
            return
        if self.exists(f"{key}/{MANIFEST}"):
            self._delete(f"{key}/{MANIFEST}")
        for name in manifest.files:
            self._upload(local / name, f"{key}/{name}")
        if stamps(local) != before:
            raise StorageError(f"{local} changed while it was being stored under '{key}'; store it again")
        self._confirm(key, manifest)
        self._write(f"{key}/{MANIFEST}", manifest.to_bytes())

    def fetch_folder(self, key: str, local: str | Path) -> Path:
        """Copy the complete folder under `key` to `local` and return it.

        Size and sha256 of every file are checked; `local` appears by one rename, whole or not at all. If it already
        holds exactly this content nothing is copied; other content is a StorageError. IncompleteFolder names the file
        that is missing, cut or damaged.
        """
        local = Path(local)
        manifest = self._manifest(key)
        if _occupied(local, manifest, key):
            return local
        temporary = local.parent / f".{local.name}.tmp-{uuid.uuid4().hex[:8]}"
        try:
            for name in manifest.files:
                self._fetch_file(key, name, temporary / name, manifest)
            _appear(temporary, local, manifest, key)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return local

    def is_complete(self, key: str) -> bool:
        """Whether the folder under `key` has a whole manifest and files of the stated sizes."""
        try:
            self._confirm(key, self._manifest(key))
        except IncompleteFolder:
            return False
        return True

    def folders(self, key: str) -> Names:
        """Names of the complete folders directly under `key`, sorted."""
        end = f"/{MANIFEST}"
        names = [found.removeprefix(f"{key}/").removesuffix(end) for found in self.list(key) if found.endswith(end)]
        return [name for name in names if "/" not in name and self.is_complete(f"{key}/{name}")]

    def set_latest(self, key: str, name: str) -> None:
        """Let `latest(key)` be folder `name` under `key`; IncompleteFolder unless that one is complete."""
        folder = f"{validate_key(key)}/{validate_writable(name)}"
        self._confirm(folder, self._manifest(folder))
        self._write(f"{key}/{POINTER}", name.encode())

    def latest(self, key: str) -> str | None:
        """Name of the folder that was last set, None if none was. IncompleteFolder if it has become incomplete."""
        try:
            name = self.get_bytes(f"{validate_key(key)}/{POINTER}").decode(errors="replace")
        except KeyMissing:
            return None
        folder = f"{key}/{validate_writable(name)}"
        self._confirm(folder, self._manifest(folder))
        return name

    def _already(self, key: str, manifest: FolderManifest, overwrite: bool) -> bool:
        """Whether this very content is stored and whole; StorageError if other content is, unless `overwrite`."""
        try:
            stored = self._manifest(key)
            self._confirm(key, stored)
        except IncompleteFolder:
            return False
        if stored == manifest:
            return True
        if not overwrite:
            raise StorageError(f"'{self.uri(key)}' already holds a complete folder with other content; use another key")
        return False

    def _manifest(self, key: str) -> FolderManifest:
        try:
            data = self.get_bytes(f"{validate_writable(key)}/{MANIFEST}")
        except KeyMissing as error:
            raise IncompleteFolder(f"'{self.uri(key)}' is not a complete folder: it has no {MANIFEST}") from error
        return FolderManifest.from_bytes(data, self.uri(key))

    def _confirm(self, key: str, manifest: FolderManifest) -> None:
        """IncompleteFolder that names the first file which is not there with its stated size."""
        sizes = self.sizes(key)
        for name, file in manifest.files.items():
            size = sizes.get(f"{key}/{name}")
            if size != file.size:
                found = "is missing" if size is None else f"has {size} bytes"
                raise IncompleteFolder(f"'{self.uri(key)}' is incomplete: {name} {found}, its size is {file.size}")

    def _fetch_file(self, key: str, name: str, path: Path, manifest: FolderManifest) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._download(f"{key}/{name}", path)
        except KeyMissing as error:
            raise IncompleteFolder(f"'{self.uri(key)}' is incomplete: {name} is missing") from error
        manifest.check(name, path, self.uri(key))


def _occupied(local: Path, manifest: FolderManifest, key: str) -> bool:
    """True if `local` holds exactly the manifest's files, False if it is absent or empty; StorageError otherwise."""
    if not local.exists() or (local.is_dir() and not any(local.iterdir())):
        return False
    if FolderManifest.of(local) != manifest:
        raise StorageError(f"{local} already exists with other content than '{key}'; remove it or fetch elsewhere")
    return True


def _appear(temporary: Path, local: Path, manifest: FolderManifest, key: str) -> None:
    """Rename into place; someone faster must have fetched the same."""
    try:
        temporary.rename(local)
    except OSError as error:
        if not _occupied(local, manifest, key):
            raise StorageUnavailable(f"{local} cannot be written: {error.strerror}") from error
