"""Option names that people bring from articles and from vLLM: what they are today, and what to write instead.

Read only when a key is unknown, and for the documentation page; importing this module reads nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline.config import yaml_text

FILE = Path(__file__).with_suffix(".yaml")
SECTIONS = ("engine", "kv", "batching", "admission", "speculation", "quant", "reasoning", "serve")
HEADS = {
    "real": "is vLLM's own name for it",
    "default_now": "is what vLLM does unless told otherwise",
    "renamed": "is no longer a vLLM option under this name",
    "removed": "is no longer a vLLM option",
    "never_existed": "is not a vLLM option",
}
RUNS = {"cpu": "CPU", "gpu": "GPU", "both": "CPU, GPU", "none": "nowhere"}


@dataclass(frozen=True)
class Option:
    """One name of the catalogue; the file's head says what each field means."""

    name: str
    status: str
    meaning: str
    runs: str
    vllm: str | None = None
    use: str | None = None
    carry: bool = False
    instead: str | None = None

    def remedy(self, value: str | None = None) -> str:
        """`use kv.dtype=fp8; ...`: what to write instead; `value` as text, where there is one to carry over."""
        key = f"{self.use}={value}" if self.carry and value is not None else self.use
        return "; ".join(part for part in (f"use {key}" if key else "", self.instead or "") if part)


@cache
def catalogue() -> dict[str, Option]:
    """All options by name, in the file's order."""
    entries = yaml_text.parse(FILE.read_text(encoding="utf-8"))
    return {name: Option(name=name, **entry) for name, entry in entries.items()}


def advice(loc: Sequence[int | str], value: object) -> str | None:
    """The sentence for the unknown key at `loc`, or None: not in the catalogue, or not in a section of the endpoint.

    `--prefill-chunk-size` counts as `prefill_chunk_size`.
    """
    if len(loc) > 1 and loc[0] not in SECTIONS:
        return None
    name = str(loc[-1]).strip().lstrip("-").replace("-", "_")
    option = catalogue().get(name)
    if option is None:
        return None
    text = None if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
    return f"`{name}` {HEADS[option.status]}; {option.remedy(text)}"


def page() -> str:
    """The documentation page, `docs/serving_options.md`."""
    rows = [
        f"| `{o.name}` | {o.status.replace('_', ' ')} | {o.meaning} | {_code(o.use)} | {o.instead or ''} "
        f"| {_code(o.vllm)} | {RUNS[o.runs]} |"
        for o in catalogue().values()
    ]
    return _PAGE + "\n".join(rows) + "\n"


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


_PAGE = """\
# Option names and what they are today

Made from `pipeline/config/option_catalogue.yaml` (`python -m pipeline.config.option_catalogue` prints it); tests hold
both against each other and against the installed vLLM.

Articles about serving name options that vLLM never had, has no longer, or has under another name. Written into a
config, each of them is refused with the sentence of its row. *Real*: vLLM has it. *Default now*: it does so unless told
otherwise. An empty *here* means that the endpoint does not set it.

| name | status | meaning | here | instead | in vLLM | runs on |
|---|---|---|---|---|---|---|
"""

if __name__ == "__main__":
    print(page(), end="")
