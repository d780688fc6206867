"""Data sets of the Hugging Face hub (or a local folder in its layout), by id and split."""

from pipeline.config import Source, UserError, nearest
from pipeline.problems.rows import Row, rows_to_problems
from pipeline.problems.sources.files import check_size

OPTIONS = ("config", "revision")


def read(source: Source, seed: int) -> list[Row]:
    """Problems of split `source.split`, in the data set's order; `seed` plays no part."""
    return rows_to_problems(raw_rows(source), source, _where(source))


def check(source: Source) -> None:
    """UserError for an unknown option; the hub is not asked."""
    unknown = [name for name in source.options if name not in OPTIONS]
    if unknown:
        raise UserError(f"hub source {source.name}: unknown option '{unknown[0]}'{nearest(unknown[0], OPTIONS)}")


def raw_rows(source: Source) -> list[dict]:
    """Rows of split `source.split` as they are; options: config (the subset's name) and revision."""
    check(source)
    import datasets

    where = _where(source)
    options = source.options
    try:
        table = datasets.load_dataset(
            source.name, options.get("config"), split=source.split, revision=options.get("revision")
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:  # no network, no such set, no such split
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"cannot load {where} from the hub: {reason}; check name, split and network, "
            "or save it as parquet and use kind parquet"
        ) from None
    check_size(len(table), source, where)
    count = len(table) if source.size is None else source.size
    return table.select(range(count)).to_list()


def _where(source: Source) -> str:
    return f"{source.name} ({source.split})"
