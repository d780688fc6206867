"""All problems of a run: read each source, then refuse what contradicts itself."""

import logging
from collections.abc import Callable, Sequence

from pipeline.config import Source, UserError
from pipeline.problems.problem import Problem
from pipeline.problems.rows import Row, listed
from pipeline.problems.sources import CHECKS, READERS

log = logging.getLogger(__name__)


def load_problems(sources: Sequence[Source], seed: int) -> list[Problem]:
    """The problems of `sources`, in their order, each (prompt, gold) once.

    `seed` makes the generated sources; files and hub data sets do not depend on it. Equal rows are dropped and the
    count is logged. Raises UserError: unreadable source, unknown column, rows without an answer, one id for two
    problems, one prompt with several answers (the two last: unless `bad_rows` is drop), nothing left.
    """
    problems = checked([row for source in sources for row in READERS[source.kind](source, seed)])
    if not problems:
        names = ", ".join(source.name for source in sources) or "an empty list"
        raise UserError(f"no problems to work on: the sources ({names}) hold none")
    return problems


def check_sources(sources: Sequence[Source]) -> None:
    """UserError where a source cannot give its problems: names, splits and options that do not exist, and for files
    all that `load_problems` finds. Generates and fetches nothing."""
    for source in sources:
        if source.kind in CHECKS:
            CHECKS[source.kind](source)
    if files := [source for source in sources if source.kind not in CHECKS]:
        load_problems(files, 0)


def checked(rows: Sequence[Row]) -> list[Problem]:
    """The problems of `rows`, each (prompt, gold) once. UserError for rows that contradict each other."""
    kept = _distinct(rows)
    kept = _without_clashes(kept, lambda row: row.problem.id, "the same id for different problems")
    kept = _without_clashes(kept, lambda row: row.problem.prompt, "the same prompt with different answers")
    return [row.problem for row in kept]


def overlap(train: Sequence[Problem], held_out: Sequence[Problem]) -> list[str]:
    """Prompts (white space apart) that stand in both; a warning is logged when there are any."""
    seen = {" ".join(problem.prompt.split()) for problem in train}
    both = list(dict.fromkeys(p.prompt for p in held_out if " ".join(p.prompt.split()) in seen))
    if both:
        log.warning("%d of %d held-out prompts are also trained on, such as: %.80r", len(both), len(held_out), both[0])
    return both


def _distinct(rows: Sequence[Row]) -> list[Row]:
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row.problem.prompt, row.problem.gold), row)
    if len(first) < len(rows):
        log.warning(
            "%d of %d rows repeat another's prompt and answer and were dropped", len(rows) - len(first), len(rows)
        )
    return list(first.values())


def _without_clashes(rows: Sequence[Row], key: Callable[[Row], str], what: str) -> list[Row]:
    """`rows` are distinct, so two with one key contradict each other: an error, or all of them go."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    clashing = [group for group in groups.values() if len(group) > 1]
    strict = [group for group in clashing if any(row.bad_rows == "error" for row in group)]
    if strict:
        raise UserError(f"{what}: {_places(strict)}; mend them, or set the sources' bad_rows to drop")
    if clashing:
        log.warning("%s: %s; dropped", what, _places(clashing))
    return [group[0] for group in groups.values() if len(group) == 1]


def _places(groups: Sequence[Sequence[Row]]) -> str:
    by_source: dict[str, list[int]] = {}
    for row in (row for group in groups for row in group):
        by_source.setdefault(row.where, []).append(row.index)
    return "; ".join(f"{where}, {listed(indices)}" for where, indices in by_source.items())
