"""What the engine needs to know of a model folder besides the weights: vocabulary size, stop tokens, text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from pipeline.config.errors import UserError
from pipeline.quantization.hardware import cpu_has_amx, unfit
from pipeline.quantization.stored import stored_quantisation


class ModelFolder:
    """A Hugging Face model folder. `stop_ids` are all its end-of-sequence ids, `vocab_size` the embedding's rows."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        config = _read_json(self.path / "config.json")
        if config is None:
            raise UserError(f"{path} is not a model folder: config.json is missing; give the folder of a checkpoint")
        self._config = config
        text_config = config.get("text_config") or config
        generation = _read_json(self.path / "generation_config.json") or {}
        self.vocab_size = int(text_config["vocab_size"])
        self.max_length = int(text_config.get("max_position_embeddings", 0))
        self.stop_ids = _ids(generation.get("eos_token_id")) or _ids(text_config.get("eos_token_id"))
        if not self.stop_ids:
            raise UserError(f"{path} names no eos_token_id in generation_config.json or config.json; add one")
        file = self.path / "tokenizer.json"
        self.tokenizer = Tokenizer.from_file(str(file)) if file.is_file() else None

    def check_length(self, max_model_len: int) -> None:
        """Raise UserError where the model has fewer positions than the engine is asked to hold."""
        if self.max_length and max_model_len > self.max_length:
            raise UserError(
                f"engine.max_model_len is {max_model_len} but the model in {self.path} has {self.max_length} positions"
            )

    def check_rounded(self, device: Literal["cpu", "cuda"], dtype: str) -> None:
        """Raise UserError where the weights are rounded in a way that an engine of this device and type would load
        and then fail to multiply."""
        stored = stored_quantisation(self._config)
        if stored and (reason := unfit(stored, self._config, device, dtype, amx=cpu_has_amx())):
            raise UserError(f"{self.path}: {reason}")

    def texts(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Exact text of each sequence, special tokens included; empty strings where the folder has no tokenizer.

        Read from tokenizer.json itself: classes chosen by model type may swap in another pre-tokenizer.
        """
        if self.tokenizer is None:
            return [""] * len(sequences)
        return self.tokenizer.decode_batch([list(ids) for ids in sequences], skip_special_tokens=False)


def _read_json(path: Path) -> dict | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); restore it from the checkpoint") from error


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)
