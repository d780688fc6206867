"""Parquet files, read with pyarrow."""

from collections.abc import Sequence

from pipeline.config import Source, UserError
from pipeline.problems.rows import Row, rows_to_problems
from pipeline.problems.sources.files import find, first_rows


def read(source: Source, seed: int) -> list[Row]:
    """Problems of the file, in its order; `seed` plays no part."""
    return rows_to_problems(raw_rows(source), source, str(source.path))


def raw_rows(source: Source) -> Sequence[dict]:
    """The file's rows as they are, the first `source.size` of them."""
    import pyarrow
    import pyarrow.parquet

    file = find(source)
    try:
        rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{source.path} is not a readable parquet file: {error}") from None
    return first_rows(rows, source, str(source.path))
