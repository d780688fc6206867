"""Any task of reasoning-gym: its question is the prompt, its answer the gold."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from pipeline.config import Columns, Source, UserError, nearest
from pipeline.problems.rows import Row, rows_to_problems

T = TypeVar("T")


def split_seed(seed: int, name: str, split: str) -> int:
    """Another 31-bit seed for each split, so that held-out problems are not the training problems again."""
    digest = hashlib.sha256(f"{seed}/{name}/{split}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def check(source: Source) -> None:
    """UserError for an unknown task, or options that it refuses."""
    _task(source, 0)


def read(source: Source, seed: int) -> list[Row]:
    """`source.size` problems of the task `source.name`; `source.options` are the task's own."""
    entries = _refusing(source, lambda: list(_task(source, seed)))
    columns = Columns(prompt="question", gold="answer")
    return rows_to_problems(entries, source.model_copy(update={"columns": columns}), _where(source))


def _task(source: Source, seed: int) -> Sequence[dict]:
    """The task's data set; its entries are made when they are read."""
    with warnings.catch_warnings():  # the package's own imports warn about their syntax
        warnings.simplefilter("ignore")
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

    if source.name not in DATASETS:
        raise UserError(f"reasoning-gym has no task '{source.name}'{nearest(source.name, DATASETS)}")
    options = {**source.options, "size": source.size, "seed": split_seed(seed, source.name, source.split)}
    return _refusing(source, lambda: reasoning_gym.create_dataset(source.name, **options))


def _refusing(source: Source, make: Callable[[], T]) -> T:
    try:
        return make()
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"{_where(source)}: the task refuses its options {dict(source.options)}: {error}") from None


def _where(source: Source) -> str:
    return f"reasoning-gym {source.name} ({source.split})"
