"""Puts a profile together from what was measured and what only people can say, and keeps it as a file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import yaml

from jobs._observe import Observed
from pipeline.config import UserError, resolve_path, yaml_text
from serve.advice_profile import Profile, check_profile
from serve.observation.figures import of_engine, of_traffic
from serve.observation.prefixes import prefix_figures


def profile_of(observed: Observed, ttft_target_ms: float | None, said: Mapping[str, Any]) -> Profile:
    """`said` are figures that nothing measures, or targets; they go before what was measured."""
    engine = of_engine(observed.effective, observed.replicas)
    traffic = of_traffic(observed.samples, observed.effective.get("max_num_seqs"), ttft_target_ms)
    own = _own(observed, observed.effective.get("block_size") or 1)
    return check_profile(engine | traffic | own | dict(said), "--figure")


def _own(observed: Observed, block: int) -> dict[str, Any]:
    """What only the sender of requests knows: their tokens, and when each piece of a reply came."""
    if not observed.sent:
        return {}
    numbers = range(len(observed.sent))
    replies = [observed.replies[n].output_tokens if n in observed.replies else 0 for n in numbers]
    lengths = sorted(map(len, observed.prompts)) * 2  # twice: a single one has no quantiles
    cuts = quantiles(lengths, n=20, method="inclusive")
    found: dict[str, Any] = {"prompt_tokens_p50": round(cuts[9]), "prompt_tokens_p95": round(cuts[18])}
    if len(observed.gaps) > 1:
        found["itl_p95_ms"] = round(1000 * quantiles(observed.gaps, n=20, method="inclusive")[18], 3)
    return found | prefix_figures(observed.prompts, replies, block)


def overthinking_of(text: str) -> float:
    """1 less the NRP share in the folder of an evaluation or of a training run, or in its file. UserError where there
    is none."""
    place = resolve_path(text)
    files = [place] if place.is_file() else [place / "evaluation.json", place / "report/after.json"]
    for file in files:
        if file.is_file():
            share = _nrp_share(file)
            if share is None:
                raise UserError(
                    f"{file} tells no NRP share: no right reply had a detected prefix, or it is another file"
                )
            return round(1 - share, 4)
    raise UserError(f"--evaluation {text} has neither evaluation.json nor report/after.json; give a folder that has")


def _nrp_share(file: Path) -> float | None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if "answers" in data:  # of a training run, by problem
            parts = [(answer["necessary"], answer["thinking"]) for answer in data["answers"].values()]
            necessary, thinking = map(sum, zip(*parts, strict=True))
            return necessary / thinking if thinking else None
        return data["all"]["nrp_share"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def said_figures(texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` of `--figure`. UserError for what is none."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"--figure takes name=value, such as own_weights=true, got '{text[:80]}'")
        try:
            found[name.strip()] = yaml_text.parse(value)
        except yaml.YAMLError:
            raise UserError(f"--figure {name}: '{value[:80]}' is no value") from None
    return found


def check_figures(said: Mapping[str, Any]) -> None:
    """UserError for a name that is no figure of a profile, or a value that it cannot have."""
    check_profile({"device": "cpu"} | dict(said), "--figure")


def write_profile(path: Path, profile: Profile, comment: str) -> None:
    """The measured figures as YAML below a comment; `read_profile` has them again."""
    figures = profile.model_dump(exclude_none=True, exclude_unset=True)
    text = f"# {comment}\n{yaml.safe_dump(figures, sort_keys=False)}"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--save-profile {path} cannot be written ({error.strerror})") from None
