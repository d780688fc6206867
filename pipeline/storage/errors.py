"""What can go wrong with storage, by what the caller can do about it."""

from pipeline.config import UserError


class StorageError(UserError):
    """A request that will not succeed by trying again: no permission, a wrong key or address, other content."""


class StorageUnavailable(StorageError):
    """Still failing after bounded retries (no answer, 5xx, disk full). The local copy must be kept; try later."""


class KeyMissing(StorageError):
    """Nothing is stored under the key."""


class IncompleteFolder(StorageError):
    """A stored folder without a whole manifest, or whose files are not what its manifest states."""
