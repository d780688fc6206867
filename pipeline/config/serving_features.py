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
    return "".join([*parts, _FIGURES])


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

_FIGURES = """
## Figures

An FP8 cache holds twice the tokens of a bfloat16 one in the same bytes. Of 576 tokens that the shipped model wrote
greedily with each, 392 were the same at the same place; until two replies part, log-probabilities differ by 0.012 nats
in the mean (`python -m pytest -s tests/engine/test_lever_effects.py`).

Block sizes for 240 replies of the shipped model (`python -m jobs.evaluate --config infra/presets/tiny.yaml --limit 60
evaluation.samples=4`, then `python -m jobs.tune block-size --samples runs/NAME/samples.jsonl --config
infra/presets/tiny.yaml`): prompts are about 22 tokens long, so only blocks of 32 find any of them again, and larger
blocks hold more memory for nothing. It takes 32.

| size | tail waste | prefix hits | tokens computed | memory held (tokens) | table entries |
|---|---|---|---|---|---|
| 32 | 15.4 | 480 | 44,108 | 10,085 | 6.2 |
| 64 | 31.0 | 0 | 44,588 | 11,446 | 3.4 |
| 128 | 65.1 | 0 | 44,588 | 13,958 | 1.9 |
| 256 | 148.3 | 0 | 44,588 | 20,104 | 1.2 |
"""

if __name__ == "__main__":
    print(page(), end="")
