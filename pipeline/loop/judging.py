"""Which judge a run has: loaded before the first step, shown, recorded, and compared when the run goes on."""

import json
from pathlib import Path
from typing import Any

from pipeline.loop.remote import get

RECORD = "judge.json"


def judge_identity(judge: Any, folder: Path, deadline_s: float) -> tuple[dict[str, str], str]:
    """What the judge actor has loaded, and a line that says so. UserError where it cannot be loaded.

    Kept in `folder`/judge.json; where a resumed run had another judge or other weights before, the line says that.
    """
    now = get(judge.describe.remote(), deadline_s, "the judge to load")
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / RECORD
    before = json.loads(record.read_text()) if record.is_file() else now
    record.write_text(json.dumps(now, indent=1))
    if _key(before) != _key(now):
        return now, f"judge: {_short(now)}; NOT the one this run had before: {_short(before)}"
    return now, f"judge: {_short(now)}"


def _key(identity: dict[str, str]) -> tuple[str, str]:
    return identity["name"], identity.get("digest", "")


def _short(identity: dict[str, str]) -> str:
    shown = {name: value[:12] if name == "digest" else value for name, value in identity.items() if name != "name"}
    return " ".join([identity["name"], *(f"{name} {value}" for name, value in shown.items())])
