"""The tiny world's problems."""

from pipeline.config import Source
from pipeline.problems.rows import Row


def check(source: Source) -> None:
    """UserError for an unknown family, split or option."""
    from pipeline.problems import tiny

    tiny.check(source.name, source.split, dict(source.options))


def read(source: Source, seed: int) -> list[Row]:
    """`source.size` problems of the family `source.name`."""
    from pipeline.problems import tiny

    problems = tiny.generate(source.name, source.size, source.split, seed, dict(source.options))
    where = f"tiny {source.name} ({source.split})"
    return [Row(problem, where, index, source.bad_rows) for index, problem in enumerate(problems)]
