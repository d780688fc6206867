"""Parquet files, read with pyarrow."""

from pipeline.config import Source, UserError
from pipeline.problems.rows import Row, rows_to_problems
from pipeline.problems.sources.files import find, first_rows


def read(source: Source, seed: int) -> list[Row]:
    """Rows of the file, in its order; `seed` plays no part."""
    import pyarrow
    import pyarrow.parquet

    file = find(source)
    try:
        rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{source.path} is not a readable parquet file: {error}") from None
    where = str(source.path)
    return rows_to_problems(first_rows(rows, source, where), source, where)
