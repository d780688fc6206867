"""Speculative speculative decoding in vLLM: while the target verifies a draft, a thread prepares the next ones.

After "Speculative Speculative Decoding" (Saguaro, arXiv 2603.03251); see `ssd.py` for its arithmetic and
docs/speculation.md for what is left out. For vLLM's `method: custom_class`, named by `ssd_settings.PROPOSER`; the
target's own sampler verifies every draft, so replies stay exact whatever this file proposes. Imports no vLLM: the
interface is the constructor's `vllm_config` and `propose`.
"""

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from serve.speculation.branches import BranchCache, Outcome
from serve.speculation.drafters import Drafter, TextDrafter
from serve.speculation.figures import publish
from serve.speculation.preparing import Preparer
from serve.speculation.ssd import Saguaro, fan_out
from serve.speculation.ssd_settings import KEY, SsdSettings
from serve.speculation.state import RecentAcceptance

LEAST, MOST = 0.05, 0.95  # bounds of the measured acceptance, which the spread of branches is computed from
STEPS_A_SPREAD = 32  # steps for which a spread stays

Step = tuple[np.ndarray, list[int]]  # a request's text and the draft that is being verified


class BranchingProposer:
    """Drafts prepared for the likely outcomes of the running verification, looked up when the outcome is known.

    vLLM names no requests to a drafter, so branches are kept by the text they continue: a draft is only ever used
    after exactly the text it was made for, whoever wrote it. Of a draft that was cut short before verification (by a
    policy or a request's cap) the rest is a branch of its own.
    """

    def __init__(self, vllm_config: Any, drafter: Drafter | None = None) -> None:
        self.settings = SsdSettings.from_config(vllm_config.additional_config.get(KEY, {}))
        self.k = int(vllm_config.speculative_config.num_speculative_tokens)
        self.longest = int(vllm_config.model_config.max_model_len)
        self.drafter = drafter or TextDrafter()
        self.cache = BranchCache(capacity=2 * int(vllm_config.scheduler_config.max_num_seqs))
        self.counters = dict.fromkeys(("backup_drafts", "without_draft"), 0)
        self._lock = threading.Lock()  # of the cache
        self._pending: dict[str, int] = {}  # lengths of the drafts being verified, by the text they follow
        self._recent, self._spreads, self._steps = RecentAcceptance(), {}, 0
        self.preparer: Preparer[Step] = Preparer(self._prepare)
        publish("speculation_ssd", lambda: self.figures)

    @property
    def figures(self) -> dict[str, float]:
        """Hits and misses of the prepared drafts, and how the preparing went."""
        return self.cache.counters | self.preparer.counters | self.counters

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Draft token ids for each request; none for a request that sampled nothing in this step (a prefill chunk)."""
        self._steps += 1
        if self._steps % STEPS_A_SPREAD == 0:
            self._spreads = {}
        drafts, steps = [], []
        for row, sampled in enumerate(sampled_token_ids):
            text = token_ids_cpu[row, : int(num_tokens_no_spec[row])].copy()
            drafts.append(self._next(text, sampled)[: max(0, self.longest - len(text) - 1)] if sampled else [])
            if drafts[-1]:
                steps.append((text, drafts[-1]))
        self._pending = {_name(text): len(draft) for text, draft in steps}
        for text, draft in steps:
            self._store(text, _rests(draft))
        self.preparer.submit(steps)
        return drafts

    def _next(self, text: np.ndarray, sampled: list[int]) -> list[int]:
        """The draft prepared for what was sampled after the text before; else what the backup gives."""
        before = text[: len(text) - len(sampled)]
        name = _name(before)
        if name in self._pending:
            self._recent.update([self._pending[name]], [min(len(sampled), self._pending[name] + 1)])
            with self._lock:
                prepared = self.cache.take(name, len(before), (len(sampled) - 1, sampled[-1]))
            if prepared:
                return list(prepared)
        if self.settings.backup == "none" and name in self._pending:
            self.counters["without_draft"] += 1
            return []
        self.counters["backup_drafts"] += 1
        return self.drafter.draft(text, self.k)

    def _prepare(self, step: Step) -> None:
        text, draft = step
        choices = self.drafter.choices(text, draft, self._spread(len(draft)))
        branches = _rests(draft)
        for accepted, tokens in enumerate(choices):
            for token in tokens:
                follow = self.drafter.draft([*text, *draft[:accepted], token], self.k)
                if follow:
                    branches[accepted, token] = follow
        self._store(text, branches)

    def _store(self, text: np.ndarray, branches: dict[Outcome, Sequence[int]]) -> None:
        with self._lock:
            self.cache.prepare(_name(text), len(text), branches)

    def _spread(self, k: int) -> list[int]:
        """Branches [k + 1] by number of accepted tokens, from the acceptance of late."""
        if k not in self._spreads:
            rate = 0.6 if self._recent.value is None else self._recent.value
            alpha = min(MOST, max(LEAST, rate))
            setting = Saguaro(
                k=k, alpha=alpha, branches=self.settings.branches, top=self.settings.top, decay=self.settings.decay
            )
            self._spreads[k] = fan_out(setting, alpha, k)
        return self._spreads[k]

    def load_model(self, *args: Any, **keys: Any) -> None:
        """vLLM calls it for every drafter; there is no model."""


def _rests(draft: Sequence[int]) -> dict[Outcome, Sequence[int]]:
    """What is left of a draft that was cut after `accepted` tokens and whose next one the target then wrote itself."""
    return {(accepted, draft[accepted]): draft[accepted + 1 :] for accepted in range(len(draft) - 1)}


def _name(text: np.ndarray) -> str:
    return hashlib.blake2b(text.tobytes(), digest_size=16).hexdigest()
