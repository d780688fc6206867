"""Log-probs that a snapshot brings along, so that whoever serves it can tell its engine computes the same model."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.weights.manifest import SnapshotError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

REFERENCE_NAME = "reference.json"  # one of the manifest's files
TOKENS = 32


@dataclass(frozen=True)
class Reference:
    """`logprobs[i]` (nats, temperature 1) is that of `token_ids[i + 1]` given the tokens before it."""

    token_ids: list[int]
    logprobs: list[float]

    def distance(self, logprobs: Sequence[float]) -> float:
        """Mean |difference| in nats; infinite where a value is missing or not a number."""
        if len(logprobs) != len(self.logprobs):
            return math.inf
        gap = sum(abs(a - b) for a, b in zip(self.logprobs, logprobs, strict=True)) / len(logprobs)
        return gap if math.isfinite(gap) else math.inf

    def to_json(self) -> str:
        return json.dumps({"token_ids": self.token_ids, "logprobs": self.logprobs})


def reference_ids(vocabulary: int) -> list[int]:
    """Fixed token ids spread over a vocabulary of this size: any sequence will do, a model is a function of it."""
    return [(7 * i * i + 3 * i + 1) % vocabulary for i in range(TOKENS)]


def make_reference(vocabulary: int, logprobs_of: Callable[[list[int]], list[float]]) -> Reference:
    """`logprobs_of(token_ids)` gives the model's log-prob of each token after the first."""
    token_ids = reference_ids(vocabulary)
    return Reference(token_ids, [round(value, 6) for value in logprobs_of(token_ids)])


def model_reference(model: "PreTrainedModel") -> Reference:
    """The log-probs of a transformers model, taken in float32 from its logits."""
    import torch

    def logprobs_of(token_ids: list[int]) -> list[float]:
        ids = torch.tensor([token_ids])
        with torch.inference_mode():
            logprobs = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
        return logprobs.gather(-1, ids[0, 1:, None])[:, 0].tolist()

    return make_reference(model.config.vocab_size, logprobs_of)


def folder_reference(folder: str | Path) -> Reference:
    """The log-probs of the weights in a model folder, as transformers computes them in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return model_reference(
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True).eval()
    )


def read_reference(folder: str | Path) -> Reference | None:
    """The reference of a snapshot folder, None where it has none. SnapshotError when it cannot be read."""
    path = Path(folder) / REFERENCE_NAME
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        reference = Reference([int(i) for i in raw["token_ids"]], [float(v) for v in raw["logprobs"]])
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path} is not a reference of log-probs: {error}") from error
    if len(reference.token_ids) != len(reference.logprobs) + 1 or len(reference.token_ids) < 2:
        raise SnapshotError(f"{path}: {len(reference.logprobs)} log-probs do not fit {len(reference.token_ids)} tokens")
    return reference


def reference_of(folder: str | Path) -> Reference:
    """The log-probs that the snapshot brings along; computed here, in float32, where it brings none."""
    return read_reference(folder) or folder_reference(folder)
