"""Storage in a local or mounted folder."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.storage.errors import KeyMissing, StorageError, StorageUnavailable
from pipeline.storage.keys import TEMPORARY, validate_key
from pipeline.storage.store import FolderStore


class LocalStore(FolderStore):
    """Objects are files under `root`; each is written beside its place, flushed to disk and renamed."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()

    def uri(self, key: str) -> str:
        """Absolute path of `key`."""
        return str(self._path(key))

    def get_bytes(self, key: str) -> bytes:
        """The bytes under `key`; KeyMissing if there are none."""
        with self._clear(key):
            return self._path(key).read_bytes()

    def exists(self, key: str) -> bool:
        """Whether a file is stored under `key`."""
        with self._clear(key):
            return self._path(key).is_file()

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """key -> bytes of every file under `prefix`; unfinished ones do not count."""
        found = {}
        with self._clear(prefix):
            for folder, _, names in os.walk(self._path(prefix) if prefix else self.root):
                for name in names:
                    if not name.startswith(TEMPORARY):
                        path = Path(folder) / name
                        found[path.relative_to(self.root).as_posix()] = path.stat().st_size
        return found

    def _write(self, key: str, data: bytes) -> None:
        with self._placed(key) as temporary:
            temporary.write_bytes(data)

    def _upload(self, local: Path, key: str) -> None:
        with self._placed(key) as temporary:
            shutil.copyfile(local, temporary)

    def _download(self, key: str, local: Path) -> None:
        with self._clear(key):
            shutil.copyfile(self._path(key), local)

    def _delete(self, key: str) -> None:
        with self._clear(key):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.root / validate_key(key)

    @contextmanager
    def _placed(self, key: str) -> Iterator[Path]:
        """A temporary file to fill; on leaving, it is durable and in its place."""
        path = self._path(key)
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        with self._clear(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                yield temporary
                _sync(temporary)
                temporary.replace(path)
                _sync(path.parent)
            finally:
                temporary.unlink(missing_ok=True)

    @contextmanager
    def _clear(self, key: str) -> Iterator[None]:
        """File errors as storage errors that name the place."""
        where = self.root / key
        try:
            yield
        except (FileNotFoundError, IsADirectoryError) as error:
            raise KeyMissing(f"there is no file {error.filename or where}") from error
        except PermissionError as error:
            raise StorageError(f"no permission for {error.filename or where}; check its owner and mode") from error
        except (NotADirectoryError, FileExistsError) as error:
            raise StorageError(f"{error.filename or where} is a file where a folder is needed") from error
        except OSError as error:
            raise StorageUnavailable(f"{where} cannot be used: {error.strerror or error}") from error


def _sync(path: Path) -> None:
    """Flush a file or folder entry to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
