"""Storage in an S3 bucket, or any server that speaks S3. The only module that imports boto3."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnection
from s3transfer.exceptions import RetriesExceededError

from pipeline.storage.errors import IncompleteFolder, KeyMissing, StorageError, StorageUnavailable
from pipeline.storage.keys import validate_key
from pipeline.storage.store import FolderStore

MIB = 1 << 20
TRANSFER = TransferConfig(multipart_threshold=16 * MIB, multipart_chunksize=32 * MIB, max_concurrency=4)
ABSENT = ("404", "NoSuchKey", "NotFound")
DENIED = ("401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "Forbidden", "ExpiredToken")
BUSY = ("SlowDown", "Throttling", "ThrottlingException", "RequestTimeout", "InternalError", "ServiceUnavailable")
NO_ANSWER = (NoConnection, HTTPClientError, IncompleteReadError, RetriesExceededError)


class S3Store(FolderStore):
    """Objects under `s3://bucket/prefix`. Credentials come from the usual AWS variables, profile or role.

    `attempts` bounds the tries of a request (standard back-off, at most 20 s between two); after them
    StorageUnavailable. With `endpoint_url` the bucket is part of the path, as most S3 clones want. `checksums`
    "when_required" is for servers that refuse the newer checksum headers; folders are checked by sha256 either way.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        endpoint_url: str | None = None,
        checksums: str = "when_supported",
        attempts: int = 5,
        connect_timeout_s: float = 5,
        read_timeout_s: float = 60,
    ) -> None:
        self.bucket = bucket
        self.prefix = f"{validate_key(prefix)}/" if prefix else ""
        self.endpoint_url = endpoint_url
        self.client = _client(
            endpoint_url,
            Config(
                s3={"addressing_style": "path" if endpoint_url else "auto"},
                retries={"total_max_attempts": attempts, "mode": "standard"},
                connect_timeout=connect_timeout_s,
                read_timeout=read_timeout_s,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
            ),
        )

    def uri(self, key: str) -> str:
        """`s3://bucket/prefix/key`."""
        return f"s3://{self.bucket}/{self._name(key)}"

    def get_bytes(self, key: str) -> bytes:
        """The bytes under `key`; KeyMissing if there are none. A body that ends early is read again."""
        buffer = io.BytesIO()
        with self._clear(key):
            self.client.download_fileobj(self.bucket, self._name(key), buffer, Config=TRANSFER)
        return buffer.getvalue()

    def exists(self, key: str) -> bool:
        """Whether an object is stored under `key`."""
        try:
            with self._clear(key):
                self.client.head_object(Bucket=self.bucket, Key=self._name(key))
        except KeyMissing:
            return False
        return True

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """key -> bytes of every object under `prefix`. Multipart uploads that were never completed do not count."""
        start = f"{self._name(prefix)}/" if prefix else self.prefix
        with self._clear(prefix):
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=start)
            objects = [found for page in pages for found in page.get("Contents", [])]
        return {found["Key"].removeprefix(self.prefix): found["Size"] for found in objects}

    def _write(self, key: str, data: bytes) -> None:
        with self._clear(key):
            self.client.put_object(Bucket=self.bucket, Key=self._name(key), Body=data)

    def _upload(self, local: Path, key: str) -> None:
        with self._clear(key), local.open("rb") as file:
            self.client.upload_fileobj(file, self.bucket, self._name(key), Config=TRANSFER)

    def _download(self, key: str, local: Path) -> None:
        with self._clear(key), local.open("wb") as file:
            self.client.download_fileobj(self.bucket, self._name(key), file, Config=TRANSFER)

    def _delete(self, key: str) -> None:
        with self._clear(key):
            self.client.delete_object(Bucket=self.bucket, Key=self._name(key))

    def _name(self, key: str) -> str:
        return self.prefix + validate_key(key)

    @contextmanager
    def _clear(self, key: str) -> Iterator[None]:
        """boto's errors as storage errors that name the address and the way out."""
        where = f"s3://{self.bucket}/{self.prefix}{key}"
        try:
            yield
        except ClientError as error:
            raise _from_reply(error, where, self.bucket) from error
        except NO_ANSWER as error:
            raise StorageUnavailable(f"{where}: no usable answer from {self._server()} ({error})") from error
        except FlexibleChecksumError as error:
            raise IncompleteFolder(f"{where} is damaged: its checksum does not fit ({error})") from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise StorageError(f"no S3 credentials for {where}; {hint}") from error
        except (BotoCoreError, Boto3Error) as error:
            raise StorageError(f"{where}: {error}") from error

    def _server(self) -> str:
        return self.endpoint_url or "S3"


def _client(endpoint_url: str | None, config: Config) -> BaseClient:
    """A client of its own session: the default session is not safe to share between threads."""
    try:
        return boto3.session.Session().client("s3", endpoint_url=endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:
        raise StorageError(f"cannot use S3 at storage.endpoint_url {endpoint_url!r}: {error}") from error


def _from_reply(error: ClientError, where: str, bucket: str) -> StorageError:
    """The storage error for an error reply of the server."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket":
        return StorageError(f"bucket '{bucket}' does not exist; create it or correct storage.uri")
    if code in ABSENT or status == 404:
        return KeyMissing(f"nothing is stored at {where}")
    if code in DENIED or status in (401, 403):
        return StorageError(f"no permission for {where} ({code}); check the credentials and the bucket's policy")
    if code in BUSY or status >= 500:
        return StorageUnavailable(f"{where}: the server still answers {status} {code} after all retries")
    return StorageError(f"{where}: {error}")
