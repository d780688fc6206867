"""`jobs.tune draft-length`: from the decision log of an adaptive policy to a table that needs no learning."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs._cli import whole_number
from pipeline.config import RunConfig, UserError, resolve_path
from serve.speculation.costs import CostModel, fit_costs
from serve.speculation.fit import MIN_STEPS, fit_table, timings
from serve.speculation.fixed import Table
from serve.speculation.from_config import settings_of
from serve.speculation.logs import Decision, read_decisions
from serve.speculation.state import PHASES

SUMMARY = "draft lengths by batch size, from what a policy logged (speculation.log)"
COSTS = ("logged", "timed", "config")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this kind of tuning."""
    parser.add_argument("--log", metavar="FILE", action="append", help="a decision log; may be given again")
    parser.add_argument("--table", metavar="FILE", help="write the table here, for speculation.policy=table")
    parser.add_argument(
        "--costs",
        choices=COSTS,
        default="logged",
        help="judge lengths by the logged costs of the steps that used them; by costs fitted to the steps' measured "
        "times; or by the config's speculation.costs (default: logged)",
    )
    parser.add_argument(
        "--min-steps",
        metavar="N",
        type=whole_number("--min-steps"),
        default=MIN_STEPS,
        help=f"steps before a length or a batch size counts (default {MIN_STEPS})",
    )


@dataclass(frozen=True)
class Fit:
    """A fitted table; `costs` is None where lengths were judged by the logged costs."""

    decisions: int
    table: Table
    costs: CostModel | None


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Prints the table and the options that use it; writes the table where it was asked for."""
    found = fitted(cfg, _logs(args), args.costs, args.min_steps)
    if args.table:
        _write(found.table, Path(args.table))
    print(text(found, args.table))
    return 0


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """What would be read and written."""
    files = ", ".join(map(str, _logs(args)))
    return f"a draft-length table from {files}, costs: {args.costs}; written to {args.table or 'no file'}"


def fitted(cfg: RunConfig, logs: Sequence[Path], costs: str, min_steps: int) -> Fit:
    """The table that the logs support. UserError when they do not hold enough."""
    rows: list[Decision] = [row for log in logs for row in read_decisions(log)]
    model = None
    if costs == "timed":
        model = fit_costs(timings(rows))
    elif costs == "config":
        settings = settings_of(cfg.speculation)
        if settings is None or not settings.costs:
            raise UserError("--costs config needs speculation.policy and speculation.costs in the config")
        model = CostModel.from_config(dict(settings.costs))
    return Fit(len(rows), fit_table(rows, model, min_steps), model)


def text(found: Fit, file: str | None) -> str:
    """The table, the costs behind it, and the two ways to use it."""
    table = found.table
    starts = sorted({start for row in table.lengths.values() for start in row})
    cells = [("requests from", *PHASES)]
    cells += [(str(start), *(str(table.length(phase, start)) for phase in PHASES)) for start in starts]
    lines = ["  ".join(cell.rjust(13) for cell in row).rstrip() for row in cells]
    judged = "by the logged costs of the steps that used a length"
    if found.costs:
        judged = "by " + ", ".join(f"{name} {value:.4g}" for name, value in asdict(found.costs).items())
    ranges = str(table.as_ranges("answer")).replace(" ", "")
    lines += [
        "",
        f"{found.decisions} decisions; judged {judged}",
        f"with phases     speculation.policy=table speculation.policy_options.table={file or 'FILE'}",
        f"vLLM's own      speculation.table={ranges} (answers' lengths for all text; counts prefills too)",
    ]
    return "\n".join(lines)


def _logs(args: argparse.Namespace) -> list[Path]:
    if not args.log:
        raise UserError("give --log FILE, the decision log of an endpoint with speculation.log set")
    logs = [resolve_path(log) for log in args.log]
    for log in logs:
        if not log.is_file():
            raise UserError(f"--log {log} is no file; an endpoint with speculation.log set writes one")
        if args.table and resolve_path(args.table).resolve() == log.resolve():
            raise UserError(f"--table {args.table} is the decision log itself; give the table a file of its own")
    return logs


def _write(table: Table, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        table.save(file)
    except OSError as error:
        raise UserError(f"{file}: cannot write the table ({error.strerror})") from None
