"""Keys: slash-separated relative names, the same for every back end."""

from pipeline.storage.errors import StorageError

MANIFEST = "_complete.json"  # in a stored folder, written last
POINTER = "_latest"  # beside stored folders
TEMPORARY = ".part-"  # first letters of files being written
MAX_BYTES = 900  # S3 allows 1024 for prefix and key together


def validate_key(key: str) -> str:
    """`key` itself, if it names something under the storage root and nothing else.

    StorageError for an empty key or part, `.` and `..`, a leading or trailing slash, a backslash, a control
    character, a name reserved for unfinished files, or more than 900 bytes.
    """
    parts = key.split("/")
    if "\\" in key or not key.isprintable():
        problem = "holds a backslash or control character"
    elif any(part in ("", ".", "..") for part in parts):
        problem = "must be relative, without empty parts, '.' or '..'"
    elif any(part.startswith(TEMPORARY) for part in parts):
        problem = f"has a part that starts with '{TEMPORARY}', kept for unfinished files"
    elif len(key.encode()) > MAX_BYTES:
        problem = f"is longer than {MAX_BYTES} bytes"
    else:
        return key
    raise StorageError(f"storage key {key!r} {problem}")


def validate_writable(key: str) -> str:
    """`validate_key`, and not one of the names by which folders are marked complete or latest."""
    if validate_key(key).rsplit("/", 1)[-1] in (MANIFEST, POINTER):
        raise StorageError(f"storage key {key!r} is kept for marking complete and latest folders; choose another name")
    return key
