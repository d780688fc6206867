"""A drafter of known quality for live tests: it knows the replies and is wrong on purpose.

For vLLM's `method: custom_class`, `model: serve.speculation.oracle.NoisyOracle`. Imports no vLLM: the interface is the
constructor's `vllm_config` and `propose`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import UserError

KEY = "noisy_oracle"  # in additional_config: {"replies": file, "vocab": n, "rate": 0 ... 1, "depth": d, "seed": s}


class NoisyOracle:
    """Proposes the next tokens of a known text, each right with probability `rate`, by place and not by luck, and none
    right beyond the first `depth` of a draft.

    `replies` is a JSON list of whole texts (prompt and greedy reply, token ids). A text that is not in it gets no
    draft. Whether a place is wrong depends only on seed, text and place, so runs can be repeated.
    """

    def __init__(self, vllm_config: Any) -> None:
        config = vllm_config.additional_config.get(KEY)
        if not config:
            raise UserError(f"the noisy oracle needs additional_config.{KEY} with replies and vocab")
        self.texts = [list(text) for text in json.loads(Path(config["replies"]).read_text(encoding="utf-8"))]
        self.rate, self.seed = float(config.get("rate", 1)), int(config.get("seed", 0))
        self.vocab = int(config["vocab"])
        self.k = int(vllm_config.speculative_config.num_speculative_tokens)
        self.depth = int(config.get("depth", self.k))

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Draft token ids for each request; none for a request that sampled nothing in this step (a prefill chunk)."""
        return [
            self.draft(token_ids_cpu[row, : int(num_tokens_no_spec[row])].tolist()) if sampled else []
            for row, sampled in enumerate(sampled_token_ids)
        ]

    def draft(self, text: list[int]) -> list[int]:
        """Up to k tokens that follow `text`, some wrong."""
        for index, known in enumerate(self.texts):
            if len(known) > len(text) and known[: len(text)] == text:
                place = len(text)
                known = known[place : place + self.k]
                draft = [self._noisy(index, at, token) for at, token in enumerate(known, place)]
                wrong = [(token + 1) % self.vocab for token in known]
                return draft[: self.depth] + wrong[self.depth :]
        return []

    def _noisy(self, index: int, place: int, token: int) -> int:
        digest = hashlib.sha256(f"{self.seed}:{index}:{place}".encode()).digest()
        return token if int.from_bytes(digest[:8], "big") / 2**64 < self.rate else (token + 1) % self.vocab

    def load_model(self, *args: Any, **keys: Any) -> None:
        """vLLM calls it for every drafter; there is no model."""
