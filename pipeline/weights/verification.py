"""Check a snapshot before anything is touched by it."""

from pathlib import Path

from pipeline.weights.manifest import WEIGHTS_NAME, Manifest, SnapshotError, TensorEntry, read_manifest
from pipeline.weights.sidecars import check_tokenizer, file_digest
from pipeline.weights.tensors import check_finite, describe, folder_shapes, read_header, read_tensors

FOREIGN_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf")


def verify(folder: str | Path, expect: str | Manifest | None = None, base: str | Path | None = None) -> Manifest:
    """The manifest of `folder`, after checking everything it states.

    `expect` is the digest (or manifest) the weights must have; `base` is a model folder whose tensor names, shapes
    and tokenizer they must share. Every tensor must be finite. Cheap checks come first; all values are read once,
    one tensor at a time. SnapshotError names the tensor or file.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    _check_files(folder, manifest)
    _check_header(folder / WEIGHTS_NAME, manifest)
    if base is not None:
        _check_base(folder, manifest, Path(base))
    if expect is not None:
        _check_expected(folder, manifest, expect)
    for name, tensor in read_tensors(folder / WEIGHTS_NAME):
        _check_entry(name, describe(tensor), manifest.tensors[name])
        check_finite(name, tensor)
    return manifest


def _check_files(folder: Path, manifest: Manifest) -> None:
    for name in ("config.json", *manifest.files):
        path = folder / name
        if not path.is_file():
            raise SnapshotError(f"{path} is missing")
        if file_digest(path) != manifest.files.get(name):
            raise SnapshotError(f"{path} is not the file that the manifest states (sha256 differs)")
    for pattern in FOREIGN_WEIGHTS:
        for path in folder.glob(pattern):
            if path.name != WEIGHTS_NAME:
                raise SnapshotError(f"{path} holds weights that the manifest does not state; a server might load them")


def _check_header(path: Path, manifest: Manifest) -> None:
    header = read_header(path)
    for name, entry in manifest.tensors.items():
        if name not in header:
            raise SnapshotError(f"tensor '{name}' is missing in {path}")
        if header[name] != (entry.dtype, entry.shape):
            found = f"{header[name][0]} {list(header[name][1])}"
            raise SnapshotError(f"tensor '{name}' is {found}, the manifest states {entry.dtype} {list(entry.shape)}")
    extra = sorted(header.keys() - manifest.tensors.keys())
    if extra:
        raise SnapshotError(f"tensor '{extra[0]}' in {path} is not in the manifest")


def _check_base(folder: Path, manifest: Manifest, base: Path) -> None:
    shapes = folder_shapes(base)
    if not shapes:
        raise SnapshotError(f"{base} has no safetensors to compare with")
    for name, entry in manifest.tensors.items():
        if name not in shapes:
            raise SnapshotError(f"tensor '{name}' is unknown to the model in {base}")
        if entry.shape != shapes[name]:
            raise SnapshotError(f"tensor '{name}' has shape {list(entry.shape)}, {base} has {list(shapes[name])}")
    missing = sorted(shapes.keys() - manifest.tensors.keys() - manifest.tied.keys())
    if missing:
        raise SnapshotError(f"tensor '{missing[0]}' of the model in {base} is missing in {folder}")
    check_tokenizer(folder, base)


def _check_expected(folder: Path, manifest: Manifest, expect: str | Manifest) -> None:
    if isinstance(expect, str):
        if manifest.digest != expect:
            raise SnapshotError(f"{folder} has digest {manifest.digest[:12]}, expected {expect[:12]}")
        return
    for name in sorted(expect.tensors.keys() | manifest.tensors.keys()):
        if expect.tensors.get(name) != manifest.tensors.get(name):
            raise SnapshotError(f"tensor '{name}' in {folder} is not the expected one")
    if manifest.version != expect.version:
        raise SnapshotError(f"{folder} holds version {manifest.version}, expected {expect.version}")


def _check_entry(name: str, found: TensorEntry, stated: TensorEntry) -> None:
    if found != stated:
        raise SnapshotError(f"tensor '{name}' does not have the values that the manifest states (sha256 differs)")
