"""From the storage section to a store."""

from pipeline.config import UserError
from pipeline.config.schema import Storage
from pipeline.storage.folder import LocalStore
from pipeline.storage.store import Store


def check_storage(config: Storage) -> None:
    """UserError for another scheme, a missing bucket, or S3 options beside a folder, which would do nothing."""
    scheme, separator, rest = config.uri.partition("://")
    if not separator:
        _check_folder(config)
    elif scheme != "s3":
        raise UserError(f"storage.uri '{config.uri}' has scheme '{scheme}'; use s3://bucket/prefix or a folder")
    elif not rest.partition("/")[0]:
        raise UserError(f"storage.uri '{config.uri}' names no bucket; use s3://bucket/prefix")


def open_storage(config: Storage) -> Store:
    """The store at `config.uri`: `s3://bucket/prefix`, or a folder (relative ones from the working directory).

    Nothing is contacted yet. UserError as `check_storage` has it.
    """
    check_storage(config)
    _, separator, rest = config.uri.partition("://")
    if not separator:
        return LocalStore(config.uri)
    bucket, _, prefix = rest.partition("/")
    from pipeline.storage.s3 import S3Store  # boto3 only where it is used

    return S3Store(bucket, prefix.strip("/"), config.endpoint_url, config.checksums)


def _check_folder(config: Storage) -> None:
    if config.endpoint_url is not None:
        raise UserError(f"storage.endpoint_url does nothing for the folder '{config.uri}'; use s3:// or remove it")
    if not config.uri:
        raise UserError("storage.uri is empty; use s3://bucket/prefix or a folder")
