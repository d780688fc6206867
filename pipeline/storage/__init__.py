"""Storage: a folder or S3 behind one interface, with folders that are complete or do not count."""

from pipeline.storage.errors import IncompleteFolder, KeyMissing, StorageError, StorageUnavailable
from pipeline.storage.folder import LocalStore
from pipeline.storage.keys import validate_key
from pipeline.storage.opening import check_storage, open_storage
from pipeline.storage.store import Store

__all__ = [
    "IncompleteFolder",
    "KeyMissing",
    "LocalStore",
    "StorageError",
    "StorageUnavailable",
    "Store",
    "check_storage",
    "open_storage",
    "validate_key",
]
