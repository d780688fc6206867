"""Labelled questions as lessons for the supervised learner: prompt ids, and one token to learn, yes or no."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pipeline.config import RunConfig
from pipeline.config.schema_teaching import JudgeTraining, WarmStart
from pipeline.judge.labelling import Labelled
from pipeline.judge.prompt import JudgePrompt

Draw = Callable[[random.Random, bool], tuple[list[int], list[int]]]
PARTS = ("short", "whole")


def teaching_plan(training: JudgeTraining) -> WarmStart:
    """The supervised learner's plan: its first phase has the short lessons, its second the whole ones."""
    shared = (
        "steps", "lr", "lr_floor", "warmup_steps", "hidden", "layers", "heads", "intermediate", "log_every",
        "checkpoint_every", "tokens_per_step",
    )  # fmt: skip
    return WarmStart(
        **{name: getattr(training, name) for name in shared},
        plain_steps=training.short_steps,
        plain_tokens_per_step=training.tokens_per_step // 2,
        overthink_lr=training.lr,
    )


def write_lessons(file: Path, prompt: JudgePrompt, short: Labelled, whole: Labelled, max_tokens: int) -> int:
    """Both sets as ids in one file, yes and no to be drawn equally often; returns how many were too long."""
    columns: dict[str, np.ndarray] = {}
    too_long = 0
    for name, found in zip(PARTS, (short, whole), strict=True):
        rows = prompt.ids(found.items)
        fitting = [i for i, ids in enumerate(rows) if len(ids) <= max_tokens]
        too_long += len(rows) - len(fitting)
        columns[f"{name}_ids"] = np.array([token for i in fitting for token in rows[i]], dtype=np.int32)
        columns[f"{name}_ends"] = np.cumsum([len(rows[i]) for i in fitting], dtype=np.int64)
        columns[f"{name}_yes"] = np.array([found.yes[i] for i in fitting], dtype=bool)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp.npz")
    np.savez_compressed(temporary, choices=np.array(prompt.choices), **columns)
    temporary.replace(file)
    return too_long


def make_draw(file: str, cfg: RunConfig) -> Draw:
    """Draws a random lesson, short or whole, yes as often as no; runs in each rank."""
    with np.load(file) as stored:
        lessons = {name: _Lessons(*(stored[f"{name}_{part}"] for part in ("ids", "ends", "yes"))) for name in PARTS}
        choices = [int(token) for token in stored["choices"]]

    def draw(rng: random.Random, plain: bool) -> tuple[list[int], list[int]]:
        yes = rng.random() < 0.5
        return lessons["short" if plain else "whole"].draw(yes, rng), [choices[yes]]

    return draw


class _Lessons:
    def __init__(self, ids: np.ndarray, ends: np.ndarray, yes: np.ndarray) -> None:
        self.ids, self.ends, self.starts = ids, ends, np.concatenate([[0], ends[:-1]])
        self.rows: tuple[Sequence[int], Sequence[int]] = (np.flatnonzero(~yes), np.flatnonzero(yes))

    def draw(self, yes: bool, rng: random.Random) -> list[int]:
        row = self.rows[yes][rng.randrange(len(self.rows[yes]))]
        return self.ids[self.starts[row] : self.ends[row]].tolist()
