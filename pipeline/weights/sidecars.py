"""The files of a model folder that are not weights: configuration, tokenizer, chat template."""

import hashlib
import json
import shutil
from pathlib import Path

from pipeline.weights.manifest import SnapshotError
from pipeline.weights.tensors import read_config

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
OTHER_FILES = ("generation_config.json",)
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def copy_sidecars(model_dir: Path, folder: Path, serving_dtype: str) -> dict[str, str]:
    """Copy them into `folder`, with config.json stating `serving_dtype`; returns name -> sha256.

    SnapshotError if config.json or every known vocabulary file is missing.
    """
    if not any((model_dir / name).is_file() for name in VOCABULARIES):
        raise SnapshotError(f"{model_dir} has no tokenizer (none of {', '.join(VOCABULARIES)})")
    config = _with_dtype(read_config(model_dir), serving_dtype)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES + OTHER_FILES:
        if (model_dir / name).is_file():
            shutil.copyfile(model_dir / name, folder / name)
    return {path.name: file_digest(path) for path in sorted(folder.iterdir())}


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_tokenizer(folder: Path, base: Path) -> None:
    """SnapshotError that names the first tokenizer file which `folder` and `base` do not share byte for byte:
    the same ids would mean other text."""
    for name in TOKENIZER_FILES:
        ours, theirs = folder / name, base / name
        if ours.is_file() != theirs.is_file():
            where = base if ours.is_file() else folder
            raise SnapshotError(f"tokenizer file {name} is missing in {where}: not the same tokenizer")
        if ours.is_file() and file_digest(ours) != file_digest(theirs):
            raise SnapshotError(f"tokenizer file {name} in {folder} is not the one in {base}")


def _with_dtype(config: dict[str, object], dtype: str) -> dict[str, object]:
    """Both the present and the older key, here and in a nested text configuration."""
    stated = {**config, "dtype": dtype, "torch_dtype": dtype}
    nested = config.get("text_config")
    if isinstance(nested, dict):
        stated["text_config"] = {**nested, "dtype": dtype, "torch_dtype": dtype}
    return stated
