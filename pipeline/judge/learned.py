"""The learned judge: a language model of which one forward pass is asked, and only for its next token.

The verdict is the probability of "yes" against "no" at the last position of the prompt; no text is generated or read.
A prompt of more than judge.max_tokens tokens is not judged (`Unjudged.OVERLONG`): cut short, it might lose the very
statement that is asked about, or keep one that the rest takes back.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.config import resolve_path
from pipeline.config.schema import Judge as JudgeConfig
from pipeline.judge.base import JudgeItem, Unjudged
from pipeline.judge.prompt import JudgePrompt

if TYPE_CHECKING:
    from pipeline.judge.folder import JudgeFolder


class Backend(Protocol):
    """Whatever runs the model."""

    def probabilities(self, prompts: Sequence[Sequence[int]], choices: tuple[int, int]) -> list[float]:
        """For each prompt (token ids) the probability of the second choice as next token, against the first."""
        ...

    def describe(self) -> dict[str, str]:
        """Options in effect."""
        ...


@dataclass(frozen=True)
class Loaded:
    """A judge ready to be asked."""

    folder: "JudgeFolder"
    prompt: JudgePrompt
    backend: Backend


class LearnedJudge:
    """Judges with the model in judge.path, loaded at the first question or `describe`. Safe to call from threads."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config, self._loaded, self._lock = config, None, threading.Lock()

    def probabilities(self, items: Sequence[JudgeItem]) -> list[float | Unjudged]:
        """Probability of yes for each item; `Unjudged.OVERLONG` where the prompt is too long. UserError for a folder
        that cannot judge or is not the one judge.digest names."""
        judge = self._judge()
        prompts = judge.prompt.ids(items)
        fitting = [i for i, ids in enumerate(prompts) if len(ids) <= self._config.max_tokens]
        found = judge.backend.probabilities([prompts[i] for i in fitting], judge.prompt.choices)
        answers: list[float | Unjudged] = [Unjudged.OVERLONG] * len(items)
        for i, probability in zip(fitting, found, strict=True):
            answers[i] = probability
        return answers

    def prompt_lengths(self, items: Sequence[JudgeItem]) -> list[int]:
        """Tokens of each item's prompt."""
        return [len(ids) for ids in self._judge().prompt.ids(items)]

    def describe(self) -> dict[str, str]:
        """Which weights judge, by digest, and how."""
        judge = self._judge()
        return {**judge.folder.describe(), "backend": self._config.backend, **judge.backend.describe()}

    def _judge(self) -> Loaded:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._config)
            return self._loaded


def _load(config: JudgeConfig) -> Loaded:
    from transformers import AutoTokenizer

    from pipeline.judge.folder import open_judge

    folder = open_judge(resolve_path(config.path), config.digest)
    prompt = JudgePrompt(AutoTokenizer.from_pretrained(folder.path), f"judge.path: {folder.path}")
    folder.check_length(config.max_tokens)
    if config.backend == "vllm":
        from pipeline.judge.vllm_backend import VllmBackend

        return Loaded(folder, prompt, VllmBackend(folder.path, config))
    from pipeline.judge.transformers_backend import TransformersBackend

    return Loaded(folder, prompt, TransformersBackend(folder.path))
