"""Runs a judge with transformers in this process: one forward pass for each batch of prompts of alike length."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

BATCH_TOKENS = 8192  # padded tokens of one forward pass


class TransformersBackend:
    """A causal language model, float32 on a CPU and bfloat16 on a GPU where there is one. Reads safetensors only."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, attn_implementation="sdpa"
        )
        self.model.to(self.device).eval()

    def describe(self) -> dict[str, str]:
        """Where and in which dtype."""
        return {"device": self.device.type, "dtype": str(self.model.dtype).removeprefix("torch.")}

    def probabilities(self, prompts: Sequence[Sequence[int]], choices: tuple[int, int]) -> list[float]:
        """For each prompt the probability of the second choice as next token, against the first: a softmax over two."""
        found = [0.0] * len(prompts)
        with torch.inference_mode():
            for rows in batches([len(prompt) for prompt in prompts], BATCH_TOKENS):
                for row, value in zip(rows, self._batch([prompts[row] for row in rows], choices), strict=True):
                    found[row] = value
        return found

    def _batch(self, prompts: Sequence[Sequence[int]], choices: tuple[int, int]) -> list[float]:
        """Padded on the right, where a causal model's earlier positions do not see it, so no mask is needed."""
        ends = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        ids = torch.zeros(len(prompts), int(ends.max()) + 1, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        places, column = torch.unique(ends, return_inverse=True)
        logits = self.model(input_ids=ids.to(self.device), logits_to_keep=places, use_cache=False).logits
        last = logits[torch.arange(len(prompts), device=self.device), column].float()
        return last[:, list(choices)].softmax(-1)[:, 1].tolist()


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Row numbers, shortest rows first, in batches of at most `most` padded tokens; a longer row is one by itself."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[row] > most:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
