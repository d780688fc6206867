"""What the gate keeps on disk: measurements by weights and question, and local copies of snapshots."""

import json
import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from pipeline.config import UserError
from pipeline.evaluation.tally import Measurement

SHOWN = 12
COPY = re.compile(r"v\d+(-[0-9a-f]{12})?")


class Kept:
    """Measurements in a folder, one file each, so that no model is measured twice in the same way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, digest: str, asked: str) -> Measurement | None:
        """The measurement of these weights asked this, None where there is none. UserError for a damaged file."""
        path = self._path(digest, asked)
        try:
            found = Measurement.from_plain(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path} is no measurement of the gate ({error}); remove it to measure again") from None
        return found if (found.digest, found.asked) == (digest, asked) else None

    def put(self, measurement: Measurement) -> None:
        """Keeps it; the file appears at once and whole."""
        path = self._path(measurement.digest, measurement.asked)
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(measurement.to_plain()), encoding="utf-8")
        scratch.replace(path)

    def _path(self, digest: str, asked: str) -> Path:
        return self.folder / f"{digest[:SHOWN]}-{asked[:SHOWN]}.json"


def copy_name(version: int, digest: str) -> str:
    """The folder name of a local copy."""
    return f"v{version}-{digest[:SHOWN]}"


def prune(home: Path, in_use: Collection[str | Path], count: int) -> list[Path]:
    """Deletes the oldest local copies under `home` but for the newest `count` of those not `in_use` (folders, wherever
    they lie); returns what was deleted. Folders of other names are left alone."""
    busy = {Path(folder).resolve() for folder in in_use}
    spare = [path for path in home.glob("v*") if COPY.fullmatch(path.name) and path.resolve() not in busy]
    newest = sorted(spare, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in newest[count:]:
        shutil.rmtree(path)
    return newest[count:]
