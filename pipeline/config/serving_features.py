"""What is written about fast serving, what it is today, and which tests prove it here: one table.

Importing this module reads nothing.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline.config import yaml_text

FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Feature:
    """One row of the table; the file's head says what each field means."""

    name: str
    group: str
    today: str
    here: str
    proofs: tuple[str, ...]
    gpu: tuple[str, ...] = ()
    why: str | None = None


@cache
def features() -> dict[str, Feature]:
    """All rows by name, in the file's order."""
    rows = yaml_text.parse(FILE.read_text(encoding="utf-8"))
    lists = {"proofs", "gpu"}
    return {
        name: Feature(name, **{key: tuple(value) if key in lists else value for key, value in row.items()})
        for name, row in rows.items()
    }


def page() -> str:
    """The documentation page, `docs/serving_features.md`."""
    parts = [_PAGE]
    for group in dict.fromkeys(feature.group for feature in features().values()):
        rows = [_row(feature) for feature in features().values() if feature.group == group]
        parts.append(f"\n## {group[0].upper()}{group[1:]}\n\n{_HEAD}{''.join(rows)}")
    return "".join(parts)


def _row(feature: Feature) -> str:
    proofs = "<br>".join(_linked(test) for test in feature.proofs)
    gpu = f"{feature.why}: " + "<br>".join(_linked(test) for test in feature.gpu) if feature.gpu else ""
    return f"| {feature.name} | {feature.today} | {feature.here} | {proofs} | {gpu} |\n"


def _linked(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name}](../{file})"


_HEAD = """\
| what is written of | what it is | here | proved on CPU by | open on CPU, and the test for a GPU |
|---|---|---|---|---|
"""
_PAGE = """\
# What is written about fast serving, and what proves it here

Made from `pipeline/config/serving_features.yaml` (`python -m pipeline.config.serving_features` prints it); a test holds
the page against the file, and the file against the tests that it names. For options by name see [Option
names](serving_options.md).

A row names the tests that fail where it no longer holds. Those of the last column need a GPU and have not run on one so
far:

```sh
GPU_TEST_MODEL=models/Qwen3-0.6B .venv/bin/python -m pytest -m gpu tests/gpu
```
"""

if __name__ == "__main__":
    print(page(), end="")
