"""The file of one KV block: a fixed header, then the bytes as the pool holds them. No pickle, nothing to interpret.

    8 bytes   magic, which names the format's version
    8 bytes   length of the payload, big-endian
    32 bytes  sha256 over root name, block name and payload

So a file that is cut short, damaged, renamed or copied from another root is told from a good one.
"""

import hashlib
import os
import stat
import struct
from io import FileIO
from pathlib import Path

MAGIC = b"KVBLOCK1"
_HEAD = struct.Struct(">8sQ32s")
HEADER_BYTES = _HEAD.size


class CorruptBlock(ValueError):
    """The file is there and is not what was written under this name."""


def file_size(payload_bytes: int) -> int:
    """Bytes of the file of a block of `payload_bytes`."""
    return HEADER_BYTES + payload_bytes


def header(root: str, name: str, payload: bytes | memoryview) -> bytes:
    """What stands before `payload` in the file of block `name` under `root`."""
    return _HEAD.pack(MAGIC, len(payload), _digest(root, name, payload))


def read_into(path: Path, root: str, name: str, target: memoryview) -> None:
    """Fills `target` (writable bytes) from the file. FileNotFoundError where there is no file (a folder or a pipe is
    none); CorruptBlock when it is not the block asked for, and `target` then holds anything."""
    with open_regular(path) as file:
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            raise CorruptBlock(f"{path}: {len(head)} bytes are no header")
        magic, length, digest = _HEAD.unpack(head)
        size = os.fstat(file.fileno()).st_size
        if magic != MAGIC or length != len(target) or size != file_size(length):
            raise CorruptBlock(f"{path}: {size} bytes do not hold a block of {len(target)}")
        filled = 0
        while filled < length and (got := file.readinto(target[filled:])):
            filled += got
    if filled < length or digest != _digest(root, name, target):
        raise CorruptBlock(f"{path}: the digest does not fit the bytes")


def open_regular(path: Path) -> FileIO:
    """The file, to be read. Never waits, as opening a pipe would; FileNotFoundError for all that is no file."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileNotFoundError(f"{path} is no file")
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # changed between the two
        file.close()
        raise FileNotFoundError(f"{path} is no file")
    return file


def _digest(root: str, name: str, payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(f"{root}\n{name}\n".encode())
    digest.update(payload)
    return digest.digest()
