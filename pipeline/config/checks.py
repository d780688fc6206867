"""Checks that need no torch and no Ray: the model folder, and what a run asks of the cluster."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.errors import UserError
from pipeline.config.paths import resolve_path
from pipeline.config.schema import RunConfig


def check_model_folder(path: str) -> Path:
    """The absolute folder of a model that engines and learner can load: config, weights, tokenizer, chat template.

    Raises UserError naming what is missing.
    """
    folder = resolve_path(path)
    if not folder.is_dir():
        raise UserError(
            f"model.path: no model folder at {folder}; give the folder of a Hugging Face model "
            "(to fetch one from the hub: hf download ORG/NAME --local-dir FOLDER)"
        )
    if not (folder / "config.json").is_file():
        raise UserError(f"model.path: {folder} has no config.json; give the folder of a Hugging Face model")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise UserError(f"model.path: {folder} has no weights (*.safetensors); fetch the model again")
    if not (folder / "tokenizer_config.json").is_file():
        raise UserError(f"model.path: {folder} has no tokenizer (tokenizer_config.json); copy the base model's")
    settings = _tokenizer_settings(folder)
    if not _has_chat_template(folder, settings):
        raise UserError(
            f"model.path: {folder} has no chat template; "
            "add chat_template.jinja, or a chat_template to its tokenizer_config.json"
        )
    return folder


def _has_chat_template(folder: Path, settings: dict[str, Any]) -> bool:
    file = folder / "chat_template.jinja"
    try:
        if file.is_file() and file.read_text(encoding="utf-8").strip():
            return True
    except UnicodeDecodeError:
        raise UserError(f"model.path: {file} is not UTF-8 text; save it as UTF-8") from None
    return bool(settings.get("chat_template"))


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"model.path: {file} is not valid JSON: {error}") from None
    if not isinstance(settings, dict):
        raise UserError(f"model.path: {file} holds no mapping; copy the base model's")
    return settings


@dataclass(frozen=True)
class Part:
    """`count` processes of one kind, each asking Ray for `cpus` and `gpus` (logical, fractions allowed)."""

    name: str
    count: int
    cpus: float
    gpus: float


@dataclass(frozen=True)
class Resources:
    """What a training run asks of Ray. The endpoint is a job of its own and not counted."""

    parts: tuple[Part, ...]

    @property
    def cpus(self) -> float:
        """Logical CPUs of all parts together."""
        return round(sum(part.count * part.cpus for part in self.parts), 6)

    @property
    def gpus(self) -> float:
        """GPUs of all parts together."""
        return round(sum(part.count * part.gpus for part in self.parts), 6)

    def shortfall(self, have: Mapping[str, float]) -> str | None:
        """`needs 4 GPU, has 0` for each of Ray's resources ("CPU", "GPU") that `have` lacks; None when all fits."""
        need = {"CPU": self.cpus, "GPU": self.gpus}
        short = [f"needs {n:g} {name}, has {have.get(name, 0):g}" for name, n in need.items() if n > have.get(name, 0)]
        return "; ".join(short) or None


def check_resources(cfg: RunConfig) -> Resources:
    """The CPUs and GPUs `cfg` asks for. Raises UserError where its options contradict each other."""
    rollout, engine, learner = cfg.rollout, cfg.engine, cfg.learner
    if engine.device == "cpu" and rollout.gpus_per_engine > 0:
        raise UserError("rollout.gpus_per_engine is set but engine.device is cpu; set one of them to match the other")
    if engine.device == "cuda" and rollout.gpus_per_engine == 0:
        raise UserError("engine.device is cuda but rollout.gpus_per_engine is 0; give each engine at least one GPU")
    if rollout.gpus_per_engine > 0 and engine.tensor_parallel > max(rollout.gpus_per_engine, 1):
        raise UserError(
            f"engine.tensor_parallel ({engine.tensor_parallel}) needs as many GPUs; "
            f"raise rollout.gpus_per_engine ({rollout.gpus_per_engine:g}) or lower the first"
        )
    return Resources(
        (
            Part("rollout engine", rollout.engines, rollout.cpus_per_engine, rollout.gpus_per_engine),
            Part("learner rank", learner.ranks, learner.cpus_per_rank, learner.gpus_per_rank),
            Part("judge", 1, cfg.judge.cpus, cfg.judge.gpus),
        )
    )
